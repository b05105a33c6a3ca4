// Command bench measures fsm-proxy side by side with what bounds it: the direct
// connection, proxies that only pass bytes (nginx, httputil.ReverseProxy, a
// copying pipe) and a typed proxy made of mcp-go. `make bench` runs it.
//
// The load and the upstream are plain bytes without an SDK, on one processor
// each, so that the proxy's own cost shows. Every subject is a process of its
// own; the command re-executes itself for those that it contains (see [roles]).
// Inside each round all subjects take their turn in a short window, so that
// drift of the machine meets all of them alike; figures are medians over the
// rounds, ratios are medians of each round's ratio.
//
//	go run ./internal/bench                       the whole table, about seven minutes
//	go run ./internal/bench -short                two minutes, rough
//	go run ./internal/bench -paths http-http-json -callers 32 \
//	    -subjects nginx,fsm-proxy -rounds 3       one question, quickly
//	go run ./internal/bench -upstream bare        with the lightest upstream that there can be
//	go run ./internal/bench -paths store,replicas -postgres URL   runs that are kept
//	go run ./internal/bench -with old=/tmp/fsm-proxy-old   two builds side by side
//
// CPU time per call needs Linux; elsewhere that column stays empty.
package main
