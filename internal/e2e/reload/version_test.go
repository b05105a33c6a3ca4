package reload

import "fmt"

// marks is how many tools there are of which a version binds one.
const marks = 8

// version is the text of the n-th good policy. It shows itself in the descriptions of its states, in the one tool
// of several that it binds, in where `go` leads, in what its second state is called, and, more slowly, in the
// resource that it binds.
func version(n int) string {
	return fmt.Sprintf(`# version %[1]d
version: 1
name: reloaded
initial: home
renamed: {%[4]s: %[3]s}
everywhere:
  tools: [%[2]s, always]
  resources: ["r://%[6]d"]
  prompts: [always]
states:
  home: {description: "version %[1]d", tools: {go: %[5]s}}
  %[3]s: {description: "version %[1]d", tools: {back: home}}
  away: {description: "version %[1]d", tools: {back: home}}
`, n, mark(n), second(n), second(n+1), target(n), shelf(n))
}

// mark is the tool that only every marks-th version binds.
func mark(n int) string { return fmt.Sprintf("mark_%d", n%marks) }

// second is what the version calls its second state; every other one renames it.
func second(n int) string { return [...]string{"even", "odd"}[n%2] }

// target is where `go` leads.
func target(n int) string {
	if n%4 < 2 {
		return second(n)
	}
	return "away"
}

// shelf tells which resource the version binds.
func shelf(n int) int { return n / 16 % 2 }

// shown is what the version lists in a state of its own.
func shown(n int, state string) []string {
	if state == "home" {
		return []string{"always", "go", mark(n)}
	}
	return []string{"always", "back", mark(n)}
}
