"""The legend of tensor axes: every jaxtyping annotation in Fabula uses these names.

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
