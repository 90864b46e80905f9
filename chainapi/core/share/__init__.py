"""Pure rules of a quota that several processes share: messages, frames, names."""
