"""The paper's human evaluation: people judge two stories side by side without knowing which system wrote which.

Read `pairs.py` (what is judged) first, then `study.py` (sides, order and assignment), `store.py` (the database),
`tasks.py` and `routes.py` (what the pages do), and `report.py` with `statistics.py` (the results).
"""
