# Lines in no order, for a sort.
import random

with open("words", "w") as words:
    for _ in range(2000):
        words.write(f"{random.random()}\n")
