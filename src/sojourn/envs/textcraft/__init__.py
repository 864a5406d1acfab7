"""TextCraft: make an item of Minecraft from its recipes, some of which lead nowhere."""

from sojourn.envs.textcraft.env import TextCraftEnv, TextCraftService

__all__ = ["TextCraftEnv", "TextCraftService"]
