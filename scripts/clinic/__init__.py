"""The clinic: thirty sick trainings as one page, docs/clinic.html, on which one buys looks and names the cause.

python -m scripts.clinic            record all, and write the page (some minutes)
python -m scripts.clinic --front    keep what was recorded; renew the page around it and its script
"""
