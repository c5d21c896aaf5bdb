"""The former name of `options.flags.roles`, which users' plug-ins import."""

from options.flags.roles import *  # noqa: F403
