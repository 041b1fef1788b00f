"""The paper's human evaluation: people judge two stories side by side without knowing which system wrote which.

Read `pairs.py` (what is judged) first, then `study.py` (sides and order), `store.py` (the database, and who judges what
next), `routes.py` (what the page does), and `report.py` (the results).
"""
