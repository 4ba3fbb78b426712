"""The commands of `spec-cascades`: one file a group, each with `add`. Only `cli` imports them.

Everything heavy is imported by the function that runs, so that --help is instant.
"""
