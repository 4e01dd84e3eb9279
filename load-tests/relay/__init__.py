"""The parts of compare.py: what to send (shapes), through whom (contenders), how it is measured, and the table."""
