"""The clinic: thirty sick trainings as one page, docs/clinic.html, on which one buys looks and names the cause.

python -m scripts.clinic            record all, and write the page (some minutes)
python -m scripts.clinic 3 12       record these two cases, and keep what the page holds of the others
python -m scripts.clinic --modlab   keep what was recorded, and ask modlab anew (on a quiet machine: a watch looks as often as it has time)
python -m scripts.clinic --front    keep what it holds of all; renew the page around it and its script
"""
