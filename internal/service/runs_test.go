package service

import (
	"regexp"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// What is named for one era holds for both, unless a client gets rid of it by itself; two that differ in that are
// refused, while both eras are served.
func TestKeysAcrossEras(t *testing.T) {
	for _, x := range []struct {
		given          string
		pathCreate     bool
		protocol       bridge.Protocol
		legacy, modern string // legacy "": it is refused
	}{
		{given: "", legacy: "session", modern: "handle"},
		{given: "legacy=session", legacy: "session", modern: "handle"},
		{given: "modern=handle", legacy: "session", modern: "handle"},
		{given: "modern=handle,legacy=session", legacy: "session", modern: "handle"},
		{given: "legacy=process", legacy: "process", modern: "process"},
		{given: "modern=process", legacy: "process", modern: "process"},
		{given: "legacy=principal", legacy: "principal", modern: "principal"},
		{given: "modern=principal", legacy: "principal", modern: "principal"},
		{given: "legacy=header:X-Run", legacy: "header:X-Run", modern: "header:X-Run"},
		{given: "modern=header:X-Run", legacy: "header:X-Run", modern: "header:X-Run"},
		{given: "legacy=path", legacy: "path", modern: "path"},
		{given: "modern=path", pathCreate: true, legacy: "path", modern: "path"},
		{given: "legacy=principal,modern=process", legacy: "principal", modern: "process"},
		{given: "legacy=session,modern=path", pathCreate: true, legacy: "session", modern: "path"},
		{given: "legacy=session,modern=path"},
		{given: "legacy=principal,modern=handle"},
		{given: "modern=handle,legacy=principal"},
		{given: "legacy=session,modern=principal"},
		{given: "legacy=process,modern=handle"},
		{given: "legacy=header:X-Run,modern=handle"},
		{given: "legacy=header:X-Run,modern=header:X-Walk"},
		{given: "legacy=header:X-Run,modern=header:X-Run", legacy: "header:X-Run", modern: "header:X-Run"},
		{given: "legacy=principal,modern=path", legacy: "principal", modern: "path"},
		{given: "legacy=principal,modern=path", pathCreate: true},
		{given: "legacy=principal,modern=handle", protocol: bridge.ProtocolModern, legacy: "principal", modern: "handle"},
		{given: "legacy=principal,modern=handle", protocol: bridge.ProtocolLegacy, legacy: "principal", modern: "handle"},
		{given: "modern=principal", protocol: bridge.ProtocolLegacy, legacy: "principal", modern: "principal"},
	} {
		f := Runs{PathCreate: x.pathCreate}
		if x.given != "" {
			f.Keys = strings.Split(x.given, ",")
		}
		keys, err := f.keysOf(true, x.protocol)
		switch {
		case x.legacy == "" && err == nil:
			t.Errorf("%q is taken for %v", x.given, keys)
		case x.legacy == "" && !strings.Contains(err.Error(), "write '--run-key "):
			t.Errorf("%q is refused without what to write: %v", x.given, err)
		case x.legacy != "" && (err != nil || keys[wire.Legacy].String() != x.legacy || keys[wire.Modern].String() != x.modern):
			t.Errorf("%q is taken for %v, %v", x.given, keys, err)
		}
	}
}

// Of all pairs those stand, in each protocol, that let a client begin anew in both eras or in neither, or that leave one era.
// What a refusal says to write stands.
func TestAllPairsOfKeys(t *testing.T) {
	suggested := regexp.MustCompile(`'--(run-key|protocol) ([^']+)'`)
	anew := map[string]bool{"session": true, "handle": true}
	for _, legacy := range []string{"process", "session", "principal", "header:X-Run", "path"} {
		for _, modern := range []string{"process", "handle", "principal", "header:X-Run", "path"} {
			for _, protocol := range []bridge.Protocol{bridge.ProtocolAuto, bridge.ProtocolBoth, bridge.ProtocolLegacy, bridge.ProtocolModern} {
				for _, create := range []bool{false, true} {
					anew["path"] = create
					f := Runs{Keys: []string{"modern=" + modern, "legacy=" + legacy}, PathCreate: create}
					_, err := f.keysOf(true, protocol)
					if stands := protocol == bridge.ProtocolLegacy || protocol == bridge.ProtocolModern || anew[legacy] == anew[modern]; stands != (err == nil) {
						t.Errorf("%v, protocol %v, --path-create %v: %v", f.Keys, protocol, create, err)
					}
					if err == nil {
						continue
					}
					for _, say := range suggested.FindAllStringSubmatch(err.Error(), -1) {
						again, in := f, bridge.ProtocolAuto
						switch say[1] + say[2] {
						case "protocollegacy":
							in = bridge.ProtocolLegacy
						case "protocolmodern":
							in = bridge.ProtocolModern
						default:
							again.Keys = []string{say[2]}
						}
						if _, err := again.keysOf(true, in); err != nil {
							t.Errorf("%v: what is suggested, %s, does not stand: %v", f.Keys, say[0], err)
						}
					}
				}
			}
		}
	}
}

// Over stdio there is one client with one session: neither era has it begin anew.
func TestKeysOverStdio(t *testing.T) {
	for _, given := range [][]string{nil, {"legacy=session"}, {"modern=process"}, {"legacy=session", "modern=process"}} {
		f := Runs{Keys: given}
		keys, err := f.keysOf(false, bridge.ProtocolAuto)
		if err != nil || keys[wire.Legacy].Kind != runs.Process || keys[wire.Modern].Kind != runs.Process {
			t.Errorf("%v is taken for %v, %v", given, keys, err)
		}
	}
}
