"""The legend of tensor axes, and names for the shapes that many signatures share.

| axis     | what it counts                                            |
|----------|-----------------------------------------------------------|
| batch    | stories, or story x chain rows, side by side              |
| sent     | N, the sentences of a story (padded to the longest)       |
| word     | words of one sentence with its `<eos>` (padded)           |
| token    | words of a whole story, sentence after sentence (padded)  |
| state    | K, the values of the switching state S_i                  |
| latent   | D, the size of Z_i                                        |
| vocab    | word types with the four specials                         |
| hidden   | the width of a recurrent network                          |
| sample   | importance samples, particles or chains                   |

Whole-story variables are the paper's capitals S, Z, X; one step is lower case s, z, z_prev, z_next.
"""

from torch import Tensor

try:
    from jaxtyping import Bool, Float, Int
except ImportError:  # fabula.statespace works with torch and numpy alone; shapes are then not named

    class Bool:  # type: ignore[no-redef]
        def __class_getitem__(cls, item: tuple[type, str]) -> type:
            return item[0]

    Float = Int = Bool

__all__ = [
    "Bool", "Flags", "Float", "Int", "Integers", "Latent", "Latents", "Mask", "PerSentence", "PerState", "PerStory",
    "PerToken", "Rows", "Scores", "Tags", "Tokens", "Words",
]  # fmt: skip

Integers = Int[Tensor, " batch"]
"""A token, a length or a state for every row."""
Flags = Bool[Tensor, " batch"]
Rows = Int[Tensor, " rows"]
"""Which rows to take."""
Words = Int[Tensor, "batch word"]
"""A sentence's tokens for every row."""
Tokens = Int[Tensor, "batch token"]
Tags = Int[Tensor, "batch sent"]
"""S; or any other number for every sentence."""
Mask = Bool[Tensor, "batch sent"]
PerStory = Float[Tensor, " batch"]
PerSentence = Float[Tensor, "batch sent"]
PerToken = Float[Tensor, "batch token"]
PerState = Float[Tensor, "batch sent state"]
"""A (log-)probability for every state of every sentence."""
Latent = Float[Tensor, "batch latent"]
"""z of one step."""
Latents = Float[Tensor, "batch sent latent"]
"""Z."""
Scores = Float[Tensor, "batch vocab"]
"""Unnormalised log-probabilities of the next word."""
