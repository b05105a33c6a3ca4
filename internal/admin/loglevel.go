package admin

import (
	"encoding/json/v2"
	"io"
	"net/http"
)

type logLevel struct {
	Level string `json:"level"`
}

func (a *Admin) level(w http.ResponseWriter, _ *http.Request) {
	answer(w, logLevel{a.Level()})
}

// setLevel takes what level gives.
func (a *Admin) setLevel(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<10))
	if err != nil {
		refuse(w, http.StatusBadRequest, `the body cannot be read: send a level, like {"level": "debug"}`)
		return
	}
	var given logLevel
	if err := json.Unmarshal(body, &given, json.RejectUnknownMembers(true)); err != nil {
		refuse(w, http.StatusBadRequest, `this is no level: send {"level": "debug"}`)
		return
	}
	if err := a.SetLevel(given.Level); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	a.level(w, r)
}
