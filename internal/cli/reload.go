package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/watch"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// reloadFlags say how the policy in force follows its file.
type reloadFlags struct {
	debounce, poll, maxStranded time.Duration
}

func (f *reloadFlags) register(flags *pflag.FlagSet) {
	flags.DurationVar(&f.debounce, "reload-debounce", 200*time.Millisecond, "how long the policy's folder must rest before a change is read")
	flags.DurationVar(&f.poll, "reload-poll", 45*time.Second, "how often the policy is read besides, where no change was noticed")
	flags.DurationVar(&f.maxStranded, "max-stranded", 24*time.Hour, "how long a run may go on whose state a reload took away")
}

// source is where the policy in force came from.
type source struct {
	path    string
	digest  [32]byte
	watched bool // it can change: no pipe
}

// load reads the policy to begin with: from a file, from the one policy in a
// folder, or from a pipe, which is read once.
func load(path string) (*policy.Policy, policy.Findings, source, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() && !info.Mode().IsRegular() {
		p, findings, err := loadPolicy(path)
		return p, findings, source{path: path}, err
	}
	file := watch.Config{Path: path, MaxSize: maxPolicySize + 1}.Read()
	if file.Err != nil {
		return nil, nil, source{}, file.Err
	}
	p, findings, err := parsePolicy(file.Path, file.Content)
	return p, findings, source{path: path, digest: file.Digest, watched: true}, err
}

// follow keeps the policy in force what its file says, until stop is called,
// which waits for the end of it. SIGHUP has the file read at once.
func (s *service) follow(ctx context.Context) (stop func()) {
	if !s.from.watched {
		return func() {}
	}
	return s.flags.reload.watch(ctx, "policy", s.from.path, s.from.digest, s.reload, s.log)
}

// watch has deliver called with what the file has become each time that it has
// changed, and when SIGHUP asks for it, until stop is called, which waits for the
// end of it. what the file is stands in messages.
func (f *reloadFlags) watch(ctx context.Context, what, path string, digest [32]byte, deliver func(watch.File), log hclog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	now := make(chan struct{}, 1)
	hangUps := make(chan os.Signal, 1)
	if !hangsUp() {
		signal.Notify(hangUps, syscall.SIGHUP)
	}
	cfg := watch.Config{Path: path, What: what, Debounce: f.debounce, MaxDebounce: max(10*f.debounce, time.Second), Poll: f.poll, MaxSize: maxPolicySize + 1, Trigger: now, Log: log}
	done := make(chan struct{}, 2)
	go func() {
		if err := watch.Watch(ctx, cfg, digest, deliver); err != nil {
			log.Error("the "+what+" is not watched", "error", err)
		}
		done <- struct{}{}
	}()
	go func() {
		pass(ctx, hangUps, now)
		done <- struct{}{}
	}()
	return func() {
		cancel()
		signal.Stop(hangUps)
		<-done
		<-done
	}
}

// pass makes hang-ups wishes to look now.
func pass(ctx context.Context, hangUps <-chan os.Signal, now chan<- struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangUps:
		}
		select {
		case now <- struct{}{}:
		default:
		}
	}
}

// reload puts what the file says in force, if it is a policy. If not, the last
// good one stays, and the log says why.
func (s *service) reload(file watch.File) {
	if file.Err != nil {
		s.refuseReload([]string{file.Err.Error()})
		return
	}
	p, findings, err := parsePolicy(file.Path, file.Content)
	if err != nil {
		s.refuseReload(texts(findings.Errors()))
		return
	}
	for _, w := range policy.Grouped(findings.Warnings()) {
		s.log.Warn("policy: " + w.String())
	}
	if err := s.locks.admit(p); err != nil {
		s.refuseReload([]string{err.Error()})
		return
	}
	done := s.relay.Reload(p)
	s.reloads.put(p)
	s.log.Info("the policy was reloaded", "file", p.File(), "digest", p.Digest(), "runs", done.Runs, "moved", done.Moved, "waiting", done.Waiting,
		"pinned", done.Pinned, "stranded", done.Stranded, "restarted", done.Restarted, "refused", done.Refused)
	if n := done.Stranded + done.Refused; n > 0 {
		s.log.Warn("runs are stranded, as the new policy has not the state that they are in: name its successor in renamed, "+
			"or have them begin anew by 'fsm-proxy admin POST /v1/runs/migrate'", "runs", n)
	}
}

func (s *service) refuseReload(errors []string) {
	s.reloads.refuse(errors)
	for _, text := range errors {
		s.log.Error("the policy was not reloaded, the last good one stays in force", "error", text)
	}
}

func texts(findings policy.Findings) []string {
	out := make([]string, len(findings))
	for i, f := range findings {
		out[i] = f.String()
	}
	return out
}

// hangsUp reports whether SIGHUP means that the terminal has gone, and so the
// end, and not the wish for a reload.
func hangsUp() bool { return isTerminal(os.Stdin) || isTerminal(os.Stdout) || isTerminal(os.Stderr) }
