package checks

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/prometheus/promql/parser"
)

// A metric is one that fsm-proxy exports, with the labels that it has besides the target's.
type metric struct {
	name   string
	labels []string
}

// operation are the labels of the histograms that OpenTelemetry names.
var operation = []string{"mcp_method_name", "gen_ai_tool_name", "error_type", "network_transport", "mcp_protocol_version"}

// metrics are all that rules and dashboard may speak of.
var metrics = []metric{
	{"mcp_server_operation_duration_seconds", operation},
	{"mcp_client_operation_duration_seconds", operation},
	{"mcp_server_session_duration_seconds", []string{"network_transport", "mcp_protocol_version"}},
	{"mcp_client_session_duration_seconds", []string{"network_transport"}},
	{"fsm_proxy_transitions_total", []string{"from", "to", "outcome"}},
	{"fsm_proxy_refusals_total", []string{"reason"}},
	{"fsm_proxy_shadow_refusals_total", []string{"reason"}},
	{"fsm_proxy_runs", []string{"state"}},
	{"fsm_proxy_runs_stranded", nil},
	{"fsm_proxy_sessions", nil},
	{"fsm_proxy_reloads_total", []string{"result"}},
	{"fsm_proxy_policy_last_reload_successful", nil},
	{"fsm_proxy_policy_last_reload_success_timestamp_seconds", nil},
	{"fsm_proxy_policy_info", []string{"name", "digest"}},
	{"fsm_proxy_overhead_seconds", nil},
	{"fsm_proxy_runs_expired_total", nil},
	{"fsm_proxy_runs_refused_total", []string{"reason"}},
	{"fsm_proxy_upstream_restarts_total", nil},
	{"fsm_proxy_upstream_noise_lines_total", nil},
	{"fsm_proxy_upstream_silent_total", nil},
	{"fsm_proxy_definition_changes_total", []string{"kind"}},
	{"fsm_proxy_draining", nil},
	{"fsm_proxy_mode", []string{"mode"}},
	{"fsm_proxy_store_commit_seconds", nil},
	{"fsm_proxy_store_records_total", nil},
	{"fsm_proxy_store_bytes_total", nil},
	{"fsm_proxy_store_errors_total", nil},
	{"fsm_proxy_store_left_out_total", nil},
	{"fsm_proxy_store_waiting", nil},
	{"fsm_proxy_store_size_bytes", nil},
	{"fsm_proxy_store_up", nil},
	{"fsm_proxy_replicas", nil},
	{"fsm_proxy_lease_trusted", nil},
	{"fsm_proxy_takeovers_total", nil},
	{"fsm_proxy_fenced_appends_total", nil},
	{"fsm_proxy_passed_on_total", []string{"outcome"}},
	{"fsm_proxy_audit_lines_total", nil},
	{"fsm_proxy_authentication_failures_total", nil},
	{"fsm_proxy_build_info", []string{"version", "goversion"}},
}

// ofReplicas are those that are there only with a database that several processes have.
var ofReplicas = []string{"fsm_proxy_replicas", "fsm_proxy_lease_trusted", "fsm_proxy_takeovers_total", "fsm_proxy_fenced_appends_total", "fsm_proxy_passed_on_total"}

// target are the labels that Prometheus gives a series of a pod behind a Service.
var target = []string{"job", "instance", "namespace", "service", "pod", "container", "endpoint"}

// histogramPart are the endings that a histogram's series have.
var histogramPart = regexp.MustCompile(`_(bucket|sum|count)$`)

// named is the metric of a series' name.
func named(series string) (metric, bool) {
	for _, m := range metrics {
		if m.name == series || strings.HasSuffix(m.name, "_seconds") && m.name == histogramPart.ReplaceAllString(series, "") {
			return m, true
		}
	}
	return metric{"up", nil}, series == "up" // Prometheus' own
}

// What `promtool check metrics` says of the names.
func TestMetricNamesAreLinted(t *testing.T) {
	var page strings.Builder
	for _, m := range metrics {
		kind, sample := "gauge", m.name
		switch {
		case strings.HasSuffix(m.name, "_total"):
			kind = "counter"
		case strings.HasSuffix(m.name, "_duration_seconds"), m.name == "fsm_proxy_overhead_seconds", m.name == "fsm_proxy_store_commit_seconds":
			kind, sample = "histogram", m.name+"_count"
		}
		fmt.Fprintf(&page, "# HELP %s Something.\n# TYPE %[1]s %s\n%s 1\n", m.name, kind, sample)
	}
	lintMetrics(t, strings.NewReader(page.String()))
}

// lintMetrics asks promtool's linter about a page of metrics.
func lintMetrics(t *testing.T, page io.Reader) {
	t.Helper()
	problems, err := promlint.New(page).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// checkExpression parses PromQL, and finds every metric and label of it among those that are exported.
func checkExpression(t *testing.T, where, expression string) (used []string) {
	t.Helper()
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return nil
	}
	allowed := append([]string{"le", "__name__"}, target...)
	parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			m, known := named(s.Name)
			if !known {
				t.Errorf("%s: fsm-proxy exports no %s", where, s.Name)
			}
			used = append(used, m.name)
			allowed = append(allowed, m.labels...)
			for _, matcher := range s.LabelMatchers {
				if !slices.Contains(slices.Concat(m.labels, target, []string{"__name__"}), matcher.Name) {
					t.Errorf("%s: %s has no label %s", where, s.Name, matcher.Name)
				}
			}
		}
		return nil
	})
	parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			for _, label := range a.Grouping {
				if !slices.Contains(allowed, label) {
					t.Errorf("%s: groups by %s, which nothing in it has", where, label)
				}
			}
		}
		return nil
	})
	return used
}

// dashboard is what is checked of Grafana's model.
type dashboard struct {
	UID        string `json:"uid"`
	Title      string `json:"title"`
	Templating struct {
		List []struct {
			Name, Type, Query string
		} `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID         int
	Type       string
	Title      string
	Datasource struct{ UID string }
	GridPos    struct{ H, W, X, Y int }
	Targets    []struct{ RefID, Expr string }
}

// grafana are the variables of Grafana that PromQL does not know.
var grafana = strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h")

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// Every metric that is exported is on the dashboard, and nothing else.
func TestDashboard(t *testing.T) {
	var d dashboard
	if err := json.Unmarshal(readFile(t, "kustomize", "monitoring", "dashboard.json"), &d); err != nil {
		t.Fatal(err)
	}
	var used []string
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := labelValues.FindStringSubmatch(v.Query)
		if m == nil {
			t.Errorf("variable %s: %s is no label_values(metric, label)", v.Name, v.Query)
			continue
		}
		used = append(used, checkExpression(t, "variable "+v.Name, m[1])...)
	}
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("panel %q has the id of another", p.Title)
		}
		ids[p.ID] = true
		if p.Type != "row" && (p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24) {
			t.Errorf("panel %q has no target, not the chosen source, or no place", p.Title)
		}
		for _, q := range p.Targets {
			used = append(used, checkExpression(t, "panel "+p.Title, grafana.Replace(q.Expr))...)
		}
	}
	for _, m := range metrics {
		if !slices.Contains(used, m.name) {
			t.Errorf("the dashboard does not show %s", m.name)
		}
	}
}
