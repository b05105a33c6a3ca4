package approval

import (
	"encoding/json/v2"
	"strconv"

	"github.com/fsm-proxy/fsm-proxy/internal/visible"
)

// Elicitation returns the params of the elicitation/create by which the user of a client is asked whether a call may
// go (2025-11-25, client/elicitation, "Form Mode"): one boolean, and the call and its arguments whole.
func Elicitation(kind, name, message string, arguments []byte) []byte {
	text := "Allow " + kind + " " + string(visible.JSON(strconv.AppendQuote(nil, name))) + "?"
	if message != "" {
		text += " " + message
	}
	if len(arguments) > 0 {
		text += "\n\nArguments: " + string(visible.JSON(arguments))
	}
	type property struct {
		Type    string `json:"type"`
		Title   string `json:"title"`
		Default bool   `json:"default"`
	}
	type form struct {
		Type       string              `json:"type"`
		Properties map[string]property `json:"properties"`
		Required   []string            `json:"required"`
	}
	params, err := json.Marshal(struct {
		Message string `json:"message"`
		Form    form   `json:"requestedSchema"`
	}{text, form{"object", map[string]property{"approve": {"boolean", "Allow this call", false}}, []string{"approve"}}})
	if err != nil { // it is text, and nothing else
		panic(err)
	}
	return params
}

// Elicited is what a client's answer to that says: result is nil where it is an error.
func Elicited(result []byte) State {
	var said struct {
		Action  string `json:"action"`
		Content struct {
			Approve any `json:"approve"`
		} `json:"content"`
	}
	switch {
	case result == nil:
		return Unanswered
	case json.Unmarshal(result, &said) != nil:
		return Denied
	case said.Action == "accept" && said.Content.Approve == true:
		return Allowed
	case said.Action == "accept", said.Action == "decline":
		return Denied
	}
	return Unanswered
}
