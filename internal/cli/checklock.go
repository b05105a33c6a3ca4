package cli

import (
	"errors"
	"io/fs"

	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// lockFindings says what run would say of a policy's lock: that there is none, or
// that tools are not in it, or, where there is a server, not what was locked. src is
// the lock's source.
func lockFindings(p *policy.Policy, given string, inv *inventory) (found policy.Findings, file string, src []byte) {
	if p.Pin() == policy.PinOff {
		return nil, "", nil
	}
	path := lockPath(given, p.File())
	l, read, err := readLock(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p.WithoutLock(noLock(p, path).Error(), p.Pin() == policy.PinRefuse), "", nil
	case read.Err != nil:
		return p.WithoutLock(err.Error(), true), "", nil
	case err != nil:
		_, its := lock.Parse(path, read.Content)
		return append(p.WithoutLock("the lock file "+path+" has errors; run 'fsm-proxy lock' again", true), its...), path, read.Content
	}
	why := map[string]string{}
	var unlocked []string
	if inv != nil {
		for tool, changes := range l.Compare(inv.tools).Changed() {
			why[tool] = changes.Sentence()
			if changes[0] == lock.Unlocked {
				unlocked = append(unlocked, tool)
			}
		}
		return p.AgainstLock(why, unlocked), "", nil
	}
	for _, tool := range p.Exact(policy.Tool) {
		if _, locked := l.Tools[tool]; !locked {
			why[tool], unlocked = lock.Changes{lock.Unlocked}.Sentence(), append(unlocked, tool)
		}
	}
	return p.AgainstLock(why, unlocked), "", nil
}
