package sqlite

import "io/fs"

// holderPath is where it says who has a lock: a locked file cannot be read here.
func holderPath(lock string) string { return lock + ".holder" }

// hasLinks tells of no file that it has more than one name: that is not looked for here.
func hasLinks(fs.FileInfo) bool { return false }
