package cli

import "github.com/fsm-proxy/fsm-proxy/proxy"

// setMode puts the mode of this word in force for every run.
func (s *service) setMode(text string) error {
	var m proxy.Mode
	if err := m.UnmarshalText([]byte(text)); err != nil {
		return err
	}
	s.relay.SetMode(m)
	return nil
}
