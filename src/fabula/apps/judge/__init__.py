"""The paper's human evaluation as a tool: people judge two stories side by side without knowing who wrote which.

Begin with `pairs.py` (what is to be judged), then `study.py` (in which order, on which side), `assign.py` (who judges
what), `store.py` (the answers) and `report.py` (what they say).
"""
