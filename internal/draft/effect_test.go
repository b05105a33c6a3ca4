package draft

import (
	"slices"
	"strings"
	"testing"
)

// What annotations leave out is as the specification has it: not read-only, and
// then destructive. Without both hints that matter they say nothing.
func TestEffectOfHints(t *testing.T) {
	for annotations, want := range map[string]effect{
		`{}`:                                     effectUnknown,
		`{"title": "x", "idempotentHint": true}`: effectUnknown,
		`{"readOnlyHint": null, "destructiveHint": null}`: effectUnknown,
		`"readOnlyHint"`:                     effectUnknown,
		`[]`:                                 effectUnknown,
		`null`:                               effectUnknown,
		`{"readOnlyHint": true, "title": 5}`: effectRead,
		`{"readOnlyHint": "true"}`:           effectDestructive,
		`{"readOnlyHint": 1, "destructiveHint": 1}`:                     effectDestructive,
		`{"readOnlyHint": "false", "destructiveHint": true}`:            effectDestructive,
		`{"readOnlyHint": false, "readOnlyHint": true}`:                 effectDestructive,
		`{"readOnlyHint": true}, "annotations": {"readOnlyHint": true}`: effectDestructive,
		`{"readOnlyHint": true}`:                                        effectRead,
		`{"readOnlyHint": true, "destructiveHint": false}`:              effectRead,
		`{"readOnlyHint": true, "destructiveHint": true}`:               effectDestructive,
		`{"readOnlyHint": false}`:                                       effectDestructive,
		`{"destructiveHint": true}`:                                     effectDestructive,
		`{"destructiveHint": false}`:                                    effectWrite,
		`{"readOnlyHint": false, "destructiveHint": false}`:             effectWrite,
		`{"readOnlyHint": null, "destructiveHint": false}`:              effectWrite,
	} {
		if got := hintsOf([]byte(`{"name": "x", "annotations": ` + annotations + `}`)).effect(); got != want {
			t.Errorf("%s: %d, want %d", annotations, got, want)
		}
	}
	if got := hintsOf([]byte(`{"name": "x"}`)).effect(); got != effectUnknown {
		t.Errorf("no annotations: %d", got)
	}
}

func TestEffectByName(t *testing.T) {
	for want, names := range map[effect][]string{
		effectRead: {"get_user", "getUser", "GetUser", "get-user", "get.user", "get", "list_x", "list-x", "search", "read_graph",
			"describe_table", "find", "getURL", "list deleted"},
		effectDestructive: {"delete_user", "deleteUser", "kubectl_delete", "db.dropTable", "get_and_delete", "REMOVE", "purge-all",
			"listThenDelete", "HTTPDelete"},
		effectUnknown: {"", "-", "write_file", "query", "run_sql", "fetch", "getter", "listen", "readme", "search_and_replace", "read_write_file", "findReplace",
			"getOrCreate", "undeleted", "日本"},
	} {
		for _, name := range names {
			if got := effectByName(wordsOf(name)); got != want {
				t.Errorf("%q: %d, want %d", name, got, want)
			}
		}
	}
}

func TestSharedPrefix(t *testing.T) {
	for names, want := range map[string]int{
		"":                                      0,
		"slack_list_channels":                   0,
		"slack_list_channels slack_post":        1,
		"a_b_get_x a_b_set_x":                   2,
		"get_a get_b":                           0, // it tells something
		"delete_a delete_b":                     0,
		"slack slack_list":                      0,
		"slack_list other_list":                 0,
		"my-listThings myDeleteThings my_thing": 1,
	} {
		var words [][]string
		for _, name := range strings.Fields(names) {
			words = append(words, wordsOf(name))
		}
		if got := sharedPrefix(words); got != want {
			t.Errorf("%s: %d, want %d", names, got, want)
		}
	}
	if got := wordsOf("my-listThings"); !slices.Equal(got, []string{"my", "list", "things"}) {
		t.Errorf("my-listThings is %q", got)
	}
}
