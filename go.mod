module github.com/fsm-proxy/fsm-proxy

go 1.27.4

require (
	cel.dev/cel-go v0.33.2 // guards: expressions over a call, with costs
	github.com/KimMachineGun/automemlimit v1.0.1 // a container's memory limit, in both kinds of cgroup
	github.com/coreos/go-oidc/v3 v3.21.0 // the access tokens that clients come with
	github.com/fsnotify/fsnotify v1.10.1 // when a policy's folder changes
	github.com/go-jose/go-jose/v4 v4.1.8 // their keys and signatures
	github.com/gofrs/flock v0.13.2 // one process a file of runs, on every system
	github.com/hashicorp/go-hclog v1.6.3 // logs, leveled, as text or JSON
	github.com/jackc/pgx/v5 v5.12.0 // runs in PostgreSQL
	github.com/looplab/fsm v1.0.3 // the machine that takes each step along with the table
	github.com/mark3labs/mcp-go v1.2.1 // OAuth and HTTP+SSE towards upstreams, the servers that demo and tests wrap
	github.com/mattn/go-colorable v0.1.12 // colours on consoles of Windows that know no escape sequences
	github.com/mattn/go-isatty v0.0.24 // colours and SIGHUP depend on a terminal
	github.com/modelcontextprotocol/go-sdk v1.8.0 // an independent client, and the conformance server, in tests
	github.com/owenrumney/go-sarif/v3 v3.3.1 // tests: the schema of SARIF
	github.com/prometheus/client_golang v1.25.0 // metrics in the formats of Prometheus, and promtool's lint in tests
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3 // arguments against a tool's inputSchema
	github.com/segmentio/encoding v0.5.4 // tests: the JSON parser that go-sdk's servers read with
	github.com/spf13/cobra v1.10.2 // the command line
	github.com/spf13/pflag v1.0.9 // its flags
	github.com/yosida95/uritemplate/v3 v3.0.2 // which template serves a bound URI (RFC 6570)
	go.opentelemetry.io/otel v1.47.0 // spans by the standard that collectors speak
	go.opentelemetry.io/otel/exporters/otlp/otlptrace v1.47.0 // what both exporters make
	go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc v1.47.0 // traces over gRPC, which adds 0.2 MB to those over HTTP
	go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp v1.47.0 // traces over HTTP
	go.opentelemetry.io/otel/sdk v1.47.0 // samplers, batches and resources by the OTEL_ variables
	go.opentelemetry.io/otel/trace v1.47.0 // the types of spans
	go.opentelemetry.io/proto/otlp v1.11.0 // tests: the collector
	go.uber.org/goleak v1.3.0 // tests: no goroutine stays behind
	go.yaml.in/yaml/v4 v4.0.0 // policies, with positions that are right
	golang.org/x/net v0.61.0 // tests: HTTP/2 frames that no client sends
	golang.org/x/sys v0.49.0 // poll, which syscall lacks; CPU clocks, in the benchmark
	golang.org/x/term v0.47.0 // how wide a terminal is
	golang.org/x/text v0.43.0 // the language of the schema validator's messages, how wide a character is
	golang.org/x/tools v0.52.0 // tests: txtar transcripts
	google.golang.org/grpc v1.83.2 // tests: the collector over gRPC
	google.golang.org/protobuf v1.36.12 // tests: what the collector gets
	modernc.org/sqlite v1.61.1 // runs in a file, without C
	pgregory.net/rapid v1.3.0 // tests: properties and the model check
)

require (
	cel.dev/expr v0.25.2 // indirect
	github.com/BurntSushi/toml v1.4.1-0.20240526193622-a339e1f7089c // indirect
	github.com/antlr4-go/antlr/v4 v4.13.1 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cenkalti/backoff/v5 v5.0.3 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dustin/go-humanize v1.1.0 // indirect
	github.com/fatih/color v1.13.0 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/google/jsonschema-go v0.4.3 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.30.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/ncruces/go-strftime v1.1.0 // indirect
	github.com/pbnjay/memory v0.0.0-20210728143218-7b4eea64cf58 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/segmentio/asm v1.1.3 // indirect
	github.com/spf13/cast v1.7.1 // indirect
	github.com/xeipuuv/gojsonpointer v0.0.0-20180127040702-4e3ac2762d5f // indirect
	github.com/xeipuuv/gojsonreference v0.0.0-20180127040603-bd5ef7bd5415 // indirect
	github.com/xeipuuv/gojsonschema v1.2.0 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel/log v1.47.0 // indirect
	go.opentelemetry.io/otel/metric v1.47.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/exp v0.0.0-20240823005443-9b4947da3948 // indirect
	golang.org/x/exp/typeparams v0.0.0-20231108232855-2478ac86f678 // indirect
	golang.org/x/mod v0.42.0 // indirect
	golang.org/x/oauth2 v0.37.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/time v0.15.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20260928230214-8a89bd6388cc // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260928230214-8a89bd6388cc // indirect
	honnef.co/go/tools v0.8.2 // indirect
	modernc.org/libc v1.79.0 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
)

tool (
	github.com/modelcontextprotocol/go-sdk/conformance/everything-server
	honnef.co/go/tools/cmd/staticcheck
)

ignore ./internal/mcptest/node/node_modules
