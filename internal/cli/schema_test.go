package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/config"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/golden"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// The schema of the chart's values ends with the schemas of policies and of the configuration file, as they are now.
func TestChartHasTheSchemas(t *testing.T) {
	file := filepath.Join(mcptest.Root(), "deploy", "helm", "fsm-proxy", "values.schema.json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	own, _, found := strings.Cut(string(text), "\n  \"$defs\": ")
	if !found {
		t.Fatalf("%s has no $defs", file)
	}
	golden.Compare(t, file, []byte(own+"\n  \"$defs\": {\n"+
		`    "policy": `+definition(t, "policy", policy.Schema())+",\n"+
		`    "config": `+definition(t, "config", config.Schema())+"\n  }\n}\n"))
}

var ofAFile = regexp.MustCompile(`(?m)^  "(\$schema|\$id|title)": .*\n`)

// definition is a schema as one of a larger schema's definitions.
func definition(t *testing.T, name string, schema []byte) string {
	t.Helper()
	text := ofAFile.ReplaceAllString(string(schema), "")
	text = strings.ReplaceAll(text, `"#/$defs/`, `"#/$defs/`+name+`/$defs/`)
	var out bytes.Buffer
	if err := json.Indent(&out, []byte(strings.TrimSpace(text)), "    ", "  "); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
