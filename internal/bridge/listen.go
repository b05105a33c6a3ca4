package bridge

import (
	"encoding/json/v2"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Notifications are those that a subscriptions/listen stream asks for, or gets.
type Notifications struct {
	Tools     bool     `json:"toolsListChanged,omitzero"`
	Prompts   bool     `json:"promptsListChanged,omitzero"`
	Resources bool     `json:"resourcesListChanged,omitzero"`
	URIs      []string `json:"resourceSubscriptions,omitzero"`
}

// Wanted reads what a subscriptions/listen asks for.
func Wanted(m *wire.Message) (n Notifications, ok bool) {
	err := json.Unmarshal(m.Bytes(m.P.Notifications), &n, json.MatchCaseInsensitiveNames(false))
	return n, err == nil && m.P.Notifications.Present()
}

// Acknowledgement is the first message of a stream: what it gets. id is that of the
// request that opened it.
func Acknowledgement(n Notifications, id []byte) []byte {
	got, _ := json.Marshal(n)
	params := append(append([]byte(`{"notifications":`), got...), '}')
	return Tagged(wire.Made(wire.NotificationMessage("notifications/subscriptions/acknowledged", params)), id)
}

// Tagged is a notification with the id of the request that opened its stream.
func Tagged(m *wire.Message, id []byte) []byte {
	names, values := []string{wire.MetaSubscription}, [][]byte{id}
	if !m.Params.Present() {
		params := append(append([]byte(`{"_meta":`), wire.Object(names, values)...), '}')
		return wire.NotificationMessage(m.Method, params)
	}
	a := wire.Amend(m.Raw, m.Params)
	a.SetMeta(m.P.Meta, names, values)
	return a.Bytes()
}

// Unlistened is the result of a stream that the server ends, which says that nothing was
// lost (2026-07-28, schema, SubscriptionsListenResult).
func Unlistened(id []byte) []byte {
	return append(append([]byte(`{"resultType":"complete","_meta":{"`+wire.MetaSubscription+`":`), id...), "}}"...)
}
