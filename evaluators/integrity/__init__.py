"""What keeps verdicts honest: targets that no trivial answer passes, and raw Python judged without trust."""
