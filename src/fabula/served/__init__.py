"""Stories written by a language model on a server, under the scaffold, taggers and critic of the default model."""
