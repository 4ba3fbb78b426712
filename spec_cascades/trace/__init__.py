"""Who wrote each token of one answer: draft, rule, residual, bonus; on the terminal and as a page.

`tokens` reads the authors off the blocks, `figures` says what both models and the rule held of each token,
`running` decodes and joins the two, `terminal` and `page` show them. Only `figures` and `running` import jax.
"""
