package cli

import "github.com/fsm-proxy/fsm-proxy/policy"

// rule is one thing that check can find.
type rule struct {
	id      string       // which does not change
	level   policy.Level // as a rule: the meaning says where it is another
	meaning string       // as in docs/policy.md
}

// rules are all that check can find.
var rules = []rule{
	{"unreadable", policy.LevelError, "the file or folder cannot be read"},
	{"empty", policy.LevelError, "the file says nothing"},
	{"encoding", policy.LevelError, "bytes that are not UTF-8, or control characters"},
	{"too-large", policy.LevelError, "the file, what aliases expand to, or what `everywhere` binds is more than is read"},
	{"syntax", policy.LevelError, "the file is not YAML"},
	{"other-kind", policy.LevelError, "the file is a lock file, a configuration file or a client's configuration"},
	{"second-document", policy.LevelError, "`---` begins another document"},
	{"tag", policy.LevelError, "a YAML tag"},
	{"alias", policy.LevelError, "an alias that contains itself"},
	{"merge", policy.LevelError, "`<<` merges what is no mapping"},
	{"key", policy.LevelError, "a key that is a mapping or a list"},
	{"duplicate-key", policy.LevelError, "a key that a mapping has twice"},
	{"colon", policy.LevelError, "a colon without a space behind it, so that key and value are one word"},
	{"null", policy.LevelError, "an unquoted word that means nothing in YAML and is a state's name"},
	{"unknown-key", policy.LevelError, "a key that the language does not have"},
	{"missing", policy.LevelError, "a key that another one needs, in a configuration or a lock file"},
	{"both", policy.LevelError, "two keys of a configuration that exclude each other"},
	{"type", policy.LevelError, "a value of another kind than the key wants: a list for a mapping, say"},
	{"value", policy.LevelError, "a value that the key does not take"},
	{"name", policy.LevelError, "a name that is empty or holds control characters"},
	{"state-name", policy.LevelError, "a state called `stay` or `none`"},
	{"duplicate", policy.LevelError, "a list that has a name twice"},
	{"version", policy.LevelError, "`version` is missing, or not 1"},
	{"states", policy.LevelError, "`states` is missing"},
	{"initial", policy.LevelError, "`initial` is missing, or names a terminal state"},
	{"unknown-target", policy.LevelError, "an edge, `initial` or `renamed` names no state"},
	{"renamed", policy.LevelError, "`renamed` maps a state that there still is"},
	{"by", policy.LevelError, "`by` and `cases` do not go together, or stand where they cannot"},
	{"guard", policy.LevelError, "an expression that is not one, or of another type than is wanted there"},
	{"because", policy.LevelError, "`because` where there is no condition"},
	{"outcome", policy.LevelError, "`on_NAME` without its outcome, or an outcome that cannot be"},
	{"register", policy.LevelError, "a register that is not declared, or cannot be changed so"},
	{"glob", policy.LevelError, "a glob with `**`, one that is too long, or too many of them in one place"},
	{"template", policy.LevelError, "a URI template in place of a URI"},
	{"overlap", policy.LevelError, "two globs that contradict each other"},
	{"own-name", policy.LevelError, "`fsm_signal` is bound as a tool where [signals](#signals) are the agent's; with a server: it has such a tool, a warning"},
	{"terminal-binds", policy.LevelError, "a terminal state binds a name"},
	{"no-terminal-reached", policy.LevelError, "a terminal is declared and no run gets there"},
	{"digest", policy.LevelError, "a lock file holds something else than SHA-256 digests"},
	{"more", policy.LevelError, "how many findings of a level are not shown; of that level"},

	{"unreachable", policy.LevelWarning, "a state that is not reached from `initial`"},
	{"trap", policy.LevelWarning, "a terminal is reached from `initial`, and none from this state"},
	{"dead-end", policy.LevelWarning, "a state that is not terminal and binds nothing"},
	{"shadowed", policy.LevelWarning, "what `everywhere` binds and no state takes"},
	{"survives-none", policy.LevelWarning, "a state's `\"*\": none`, and names of `everywhere` that are more specific"},
	{"no-on-unknown", policy.LevelWarning, "a tool that leads on and has no `on_unknown`; a note for resources and prompts, and for tools that the server calls idempotent or read-only"},
	{"dotted-by", policy.LevelWarning, "`by` has a dot: it is a path, and was one argument of that very name before"},
	{"glob-case", policy.LevelWarning, "a case with a `*`: it is a glob, and was that text alone before"},
	{"plain-case", policy.LevelWarning, "a case without quotes that YAML reads as no text: a number or a boolean, which were texts before, or a text, such as `0x1F`"},
	{"guard-negation", policy.LevelWarning, "`!` or `!=` of an argument that may be of another type: it is true of that"},
	{"guard-all", policy.LevelWarning, "`all` of a list that may be empty: it is true of that"},
	{"executed-glob", policy.LevelWarning, "a glob over an argument `command`, `cmd`, `script` or `code`: a shell reads more in a text than one command"},
	{"self-approval", policy.LevelWarning, "a [signal](#signals) of the agent's that is called like an approval"},
	{"operator-only", policy.LevelNote, "a state in which nothing is bound but an operator's [signals](#signals)"},
	{"cycle", policy.LevelNote, "no edge is terminal, and runs can go round"},
	{"no-on-complete", policy.LevelNote, "an edge completes the run, and nothing is said of what follows: [the run begins anew](#completion)"},
	{"implicit-stay", policy.LevelNote, "an outcome of which nothing is said, so that the state stays"},

	{"unknown-name", policy.LevelError, "a bound name that the server does not list; a note where the value is `none`"},
	{"unknown-argument", policy.LevelError, "`by` names an argument that the item does not have, or that is of no kind that a case is; a warning where the item may take arguments that it does not declare, or this one as a boolean or a number"},
	{"unknown-case", policy.LevelError, "a case that the argument cannot be: it is of another kind, or the item lists the values that it takes; a note where the case is `none`"},
	{"matches-nothing", policy.LevelWarning, "a glob that matches nothing listed; a note where the value is `none`"},
	{"no-lock", policy.LevelError, "`pin` wants a [lock file](lock.md) that is not there, or cannot be read; a warning where `pin: warn` has none"},
	{"not-locked", policy.LevelError, "a bound tool that the lock file does not have; a warning with `pin: warn`"},
	{"definition-changed", policy.LevelError, "with a server: a bound tool that is not what was locked; a warning with `pin: warn`"},
	{"no-handle", policy.LevelNote, "a bound tool that clients of the modern era cannot call [by handle](runs.md#by-handle); a warning where `--config` says that this is the key"},
	{"unbound", policy.LevelNote, "a listed name that no state binds"},

	{"stranded", policy.LevelWarning, "a state of the old policy that the new one does not have"},
	{"policy-added", policy.LevelNote, "a policy that only the new folder has"},
	{"policy-removed", policy.LevelNote, "a policy that only the old folder has"},
	{"reload", policy.LevelNote, "what a reload would do, as `--format github` tells it"},
}
