package sqlite

// holderPath is where it says who has a lock: a locked file cannot be read here.
func holderPath(lock string) string { return lock + ".holder" }
