package checks

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	core "k8s.io/api/core/v1"
)

func TestMonitoringRenders(t *testing.T) {
	all := objects(t, kustomize(t, "kustomize", "monitoring"))
	the[*monitoring.PrometheusRule](t, all)
	endpoint := the[*monitoring.ServiceMonitor](t, all).Spec.Endpoints[0]
	example := the[*core.Service](t, objects(t, kustomize(t, "kustomize", "example")))
	if !slices.ContainsFunc(example.Spec.Ports, func(p core.ServicePort) bool { return p.Name == endpoint.Port }) {
		t.Errorf("the Service has no port %s for the ServiceMonitor", endpoint.Port)
	}
	for label, value := range the[*monitoring.ServiceMonitor](t, all).Spec.Selector.MatchLabels {
		if example.Labels[label] != value {
			t.Errorf("the ServiceMonitor selects %s=%s, which the Service has not", label, value)
		}
	}
	if m := the[*core.ConfigMap](t, all); m.Labels["grafana_dashboard"] != "1" || !json.Valid([]byte(m.Data["fsm-proxy.json"])) {
		t.Error("the dashboard's ConfigMap is none that Grafana collects")
	}
}

// alerts are all rules.
func alerts(t *testing.T) []monitoring.Rule {
	t.Helper()
	rule := the[*monitoring.PrometheusRule](t, objects(t, kustomize(t, "kustomize", "monitoring")))
	var all []monitoring.Rule
	for _, g := range rule.Spec.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// Each alert speaks of what is exported, and says how bad it is and what to do.
func TestAlertsAreDocumented(t *testing.T) {
	page := string(readFile(t, "..", "docs", "kubernetes.md"))
	for _, a := range alerts(t) {
		checkExpression(t, a.Alert, a.Expr.String())
		if !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("%s: severity %q", a.Alert, a.Labels["severity"])
		}
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s says nothing", a.Alert)
		}
		book, anchor, _ := strings.Cut(a.Annotations["runbook_url"], "#")
		if !strings.HasSuffix(book, "/docs/kubernetes.md") || !headings(page)[anchor] {
			t.Errorf("%s: %s leads nowhere", a.Alert, a.Annotations["runbook_url"])
		}
		if !strings.Contains(page, a.Alert) {
			t.Errorf("docs/kubernetes.md does not name %s", a.Alert)
		}
	}
}

var (
	heading     = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notInAnchor = regexp.MustCompile("[^a-z0-9 _-]")
)

// headings are a page's anchors, as GitHub makes them.
func headings(page string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		found[strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return found
}

// rulesFile is the rules as Prometheus itself reads them, checked as `promtool check rules` does.
func rulesFile(t *testing.T) string {
	t.Helper()
	spec, err := json.Marshal(the[*monitoring.PrometheusRule](t, objects(t, kustomize(t, "kustomize", "monitoring"))).Spec)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, spec, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, faults := rulefmt.ParseFile(path, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler)); len(faults) > 0 {
		t.Fatal(faults)
	}
	return path
}

// An alertCase loads series, one sample a minute, and names the alerts that fire in the end, and those labels of theirs
// that matter.
type alertCase struct {
	series string
	after  time.Duration
	firing map[string]string
}

// The labels of two pods' series, and the series of calls that were sent and not answered.
const (
	podA = `job="fsm-proxy", namespace="agents", service="playwright", pod="a"`
	podB = `job="fsm-proxy", namespace="agents", service="playwright", pod="b"`

	unknown = `mcp_server_operation_duration_seconds_count{` + podA + `, mcp_method_name="tools/call", error_type="outcome_unknown"}`
)

var alertCases = map[string]alertCase{
	"all is well": {`
		up{` + podA + `} 1+0x60
		fsm_proxy_policy_last_reload_successful{` + podA + `} 1+0x60
		fsm_proxy_policy_info{` + podA + `, name="p", digest="1"} 1+0x60
		fsm_proxy_policy_info{` + podB + `, name="p", digest="1"} 1+0x60
		fsm_proxy_mode{` + podA + `, mode="enforce"} 1+0x60
		fsm_proxy_mode{` + podA + `, mode="shadow"} 0+0x60
		fsm_proxy_draining{` + podA + `} 0+0x60
		fsm_proxy_store_up{` + podA + `} 1+0x60
		fsm_proxy_replicas{` + podA + `} 2+0x60
		fsm_proxy_lease_trusted{` + podA + `} 1+0x60
		fsm_proxy_takeovers_total{` + podA + `} 2+0x60
		fsm_proxy_fenced_appends_total{` + podA + `} 0+0x60
		fsm_proxy_passed_on_total{` + podA + `, outcome="answered"} 0+50x60
		fsm_proxy_runs_stranded{` + podA + `} 0+0x60
		fsm_proxy_refusals_total{` + podA + `, reason="invalid_transition"} 0+1x60
		fsm_proxy_refusals_total{` + podA + `, reason="upstream_unavailable"} 3+0x60
		mcp_server_operation_duration_seconds_count{` + podA + `, mcp_method_name="tools/call"} 0+100x60
		fsm_proxy_transitions_total{` + podA + `, from="s", to="s", outcome="success"} 0+99x60
		fsm_proxy_authentication_failures_total{` + podA + `} 0+1x60
		fsm_proxy_upstream_restarts_total{` + podA + `} 1+0x60
		fsm_proxy_definition_changes_total{` + podA + `, kind="description"} 0+0x120
		fsm_proxy_overhead_seconds_bucket{` + podA + `, le="0.001"} 0+100x60
		fsm_proxy_overhead_seconds_bucket{` + podA + `, le="+Inf"} 0+100x60`, 60 * time.Minute, nil},
	"down":                 {`up{` + podA + `} 1 0+0x9`, 8 * time.Minute, map[string]string{"FSMProxyDown": `pod="a"`}},
	"down for a moment":    {`up{` + podA + `} 1 0 0 1+0x9`, 8 * time.Minute, nil},
	"another job down":     {`up{job="other", pod="a"} 0+0x9`, 8 * time.Minute, nil},
	"bad policy":           {`fsm_proxy_policy_last_reload_successful{` + podA + `} 1 1 0+0x9`, 6 * time.Minute, map[string]string{"FSMProxyPolicyReloadFailed": `pod="a"`}},
	"bad policy, replaced": {`fsm_proxy_policy_last_reload_successful{` + podA + `} 1 0 1+0x9`, 6 * time.Minute, nil},
	"pods apart": {`
		fsm_proxy_policy_info{` + podA + `, name="p", digest="1"} 1+0x30
		fsm_proxy_policy_info{` + podB + `, name="p", digest="2"} 1+0x30`, 20 * time.Minute,
		map[string]string{"FSMProxyPoliciesDiffer": `service="playwright"`}},
	"pods apart for a moment": {`
		fsm_proxy_policy_info{` + podA + `, name="p", digest="2"} 1+0x30
		fsm_proxy_policy_info{` + podB + `, name="p", digest="1"} 1 1 1 stale
		fsm_proxy_policy_info{` + podB + `, name="p", digest="2"} _ _ _ 1+0x30`, 20 * time.Minute, nil},
	"shadow for a day": {`fsm_proxy_mode{` + podA + `, mode="shadow"} 1+0x1500`, 25 * time.Hour, map[string]string{"FSMProxyShadowMode": `pod="a"`}},
	"refusals": {`
		fsm_proxy_refusals_total{` + podA + `, reason="invalid_transition"} 0+30x40
		mcp_server_operation_duration_seconds_count{` + podA + `, mcp_method_name="tools/call"} 0+100x40
		mcp_server_operation_duration_seconds_count{` + podA + `, mcp_method_name="tools/list"} 0+900x40`, 30 * time.Minute,
		map[string]string{"FSMProxyManyRefusals": `service="playwright"`}},
	"server gone": {`fsm_proxy_refusals_total{` + podA + `, reason="upstream_unavailable"} 0+2x30`, 10 * time.Minute,
		map[string]string{"FSMProxyUpstreamUnavailable": `pod="a"`}},
	"store down":              {`fsm_proxy_store_up{` + podA + `} 1 1 0+0x9`, 6 * time.Minute, map[string]string{"FSMProxyStoreDown": `pod="a"`}},
	"store down for a moment": {`fsm_proxy_store_up{` + podA + `} 1 0 1+0x9`, 6 * time.Minute, nil},
	"no pod has a lease": {`
		fsm_proxy_lease_trusted{` + podA + `} 1 0+0x9
		fsm_proxy_lease_trusted{` + podB + `} 1 0+0x9`, 4 * time.Minute, map[string]string{"FSMProxyNoOwner": `service="playwright"`}},
	"one of two has none": {`
		fsm_proxy_lease_trusted{` + podA + `} 0+0x9
		fsm_proxy_lease_trusted{` + podB + `} 1+0x9`, 8 * time.Minute, nil},
	"no pod had a lease for a moment": {`fsm_proxy_lease_trusted{` + podA + `} 1 0 1+0x9`, 8 * time.Minute, nil},
	"taken over": {`
		fsm_proxy_takeovers_total{` + podA + `} 0 0 3+0x30
		fsm_proxy_takeovers_total{` + podB + `} 0+0x30`, 10 * time.Minute, map[string]string{"FSMProxyTakeovers": `service="playwright"`}},
	"taken over long ago":        {`fsm_proxy_takeovers_total{` + podA + `} 0 3+0x60`, 40 * time.Minute, nil},
	"late writes":                {`fsm_proxy_fenced_appends_total{` + podA + `} 0 1+0x30`, 10 * time.Minute, map[string]string{"FSMProxyFencedAppends": `pod="a"`}},
	"late writes long ago":       {`fsm_proxy_fenced_appends_total{` + podA + `} 0 1+0x60`, 40 * time.Minute, nil},
	"not passed on":              {`fsm_proxy_passed_on_total{` + podA + `, outcome="not_sent"} 0 0+20x30`, 12 * time.Minute, map[string]string{"FSMProxyNotPassedOn": `pod="a"`}},
	"not passed on for a moment": {`fsm_proxy_passed_on_total{` + podA + `, outcome="not_sent"} 0 20 40+0x30`, 12 * time.Minute, nil},
	"unknown outcomes":           {unknown + ` 1 1 1 2+0x30`, 12 * time.Minute, map[string]string{"FSMProxyOutcomesUnknown": `pod="a"`}},
	"the first unknown outcome":  {unknown + ` _ _ _ 1+0x30`, 4 * time.Minute, map[string]string{"FSMProxyOutcomesUnknown": `pod="a"`}},
	"unknown outcomes long ago":  {unknown + ` 3+0x60`, 40 * time.Minute, nil},
	"server dies again and again": {`fsm_proxy_upstream_restarts_total{` + podA + `} 0+1x30`, 10 * time.Minute,
		map[string]string{"FSMProxyUpstreamRestarts": `pod="a"`}},
	"definition changed": {`fsm_proxy_definition_changes_total{` + podA + `, kind="description"} 0 0 0 1+0x30`, 5 * time.Minute,
		map[string]string{"FSMProxyDefinitionChanged": `kind="description"`}},
	"definition changed while nobody looked": {`fsm_proxy_definition_changes_total{` + podA + `, kind="description"} _ _ 1+0x30`, 5 * time.Minute,
		map[string]string{"FSMProxyDefinitionChanged": `kind="description"`}},
	"definition changed long ago": {`fsm_proxy_definition_changes_total{` + podA + `, kind="description"} 1+0x200`, 180 * time.Minute, nil},
	"draining":                    {`fsm_proxy_draining{` + podA + `} 0 1+0x9`, 6 * time.Minute, map[string]string{"FSMProxyDrainingTooLong": `pod="a"`}},
	"drained":                     {`fsm_proxy_draining{` + podA + `} 0 1 stale`, 6 * time.Minute, nil},
	"stranded": {`fsm_proxy_runs_stranded{` + podA + `} 2+0x100`, 70 * time.Minute,
		map[string]string{"FSMProxyRunsStranded": `service="playwright"`}},
	"turned away": {`fsm_proxy_authentication_failures_total{` + podA + `} 0+60x30`, 20 * time.Minute,
		map[string]string{"FSMProxyAuthenticationFailures": `service="playwright"`}},
	"slow": {`
		fsm_proxy_overhead_seconds_bucket{` + podA + `, le="0.01"} 0+50x30
		fsm_proxy_overhead_seconds_bucket{` + podA + `, le="0.1"} 0+100x30
		fsm_proxy_overhead_seconds_bucket{` + podA + `, le="+Inf"} 0+100x30`, 25 * time.Minute,
		map[string]string{"FSMProxySlow": `pod="a"`}},
}

// What `promtool test rules` does.
func TestAlertsFire(t *testing.T) {
	path := rulesFile(t)
	tested := map[string]bool{}
	for name, c := range alertCases {
		t.Run(name, func(t *testing.T) {
			got := firing(t, path, c.series, c.after)
			if want := slices.Sorted(maps.Keys(c.firing)); !slices.Equal(slices.Sorted(maps.Keys(got)), want) {
				t.Errorf("firing: %v, not %v", got, want)
			}
			for alert, label := range c.firing {
				tested[alert] = true
				if !strings.Contains(got[alert], label) {
					t.Errorf("%s fires for %s, not for %s", alert, got[alert], label)
				}
			}
		})
	}
	for _, a := range alerts(t) {
		if !tested[a.Alert] {
			t.Errorf("no case makes %s fire", a.Alert)
		}
	}
}

// firing evaluates the rules once a minute over the series, and returns what fires in the end.
func firing(t *testing.T, path, series string, after time.Duration) map[string]string {
	t.Helper()
	suite, err := promqltest.NewLazyLoader("load 1m\n"+strings.TrimSpace(series), promqltest.LazyLoaderOpts{})
	if err != nil {
		t.Fatal(err)
	}
	defer suite.Close()
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc:  rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage()),
		Appendable: suite.Storage(),
		Context:    context.Background(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
		Logger:     slog.New(slog.DiscardHandler),
		Parser:     parser.NewParser(parser.Options{}),
	})
	groups, faults := manager.LoadGroups(time.Minute, labels.EmptyLabels(), (&url.URL{}).String(), nil, false, path)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	found := map[string]string{}
	for _, group := range groups {
		for at := time.Unix(0, 0).UTC(); !at.After(time.Unix(0, 0).Add(after)); at = at.Add(time.Minute) {
			evaluate(t, suite, group, at)
		}
		for _, rule := range group.Rules() {
			for _, alert := range rule.(*rules.AlertingRule).ActiveAlerts() {
				if alert.State == rules.StateFiring {
					found[rule.Name()] += alert.Labels.String()
				}
			}
		}
	}
	return found
}

func evaluate(t *testing.T, suite *promqltest.LazyLoader, group *rules.Group, at time.Time) {
	t.Helper()
	suite.WithSamplesTill(at, func(err error) {
		if err != nil {
			t.Fatal(err)
		}
		group.Eval(suite.Context(), at)
	})
	for _, rule := range group.Rules() {
		if err := rule.LastError(); err != nil {
			t.Fatalf("%s at %v: %v", rule.Name(), at, err)
		}
	}
}
