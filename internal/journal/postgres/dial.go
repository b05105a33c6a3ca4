package postgres

import (
	"net"
	"time"
)

// silence is for how long the machine of a database may answer nothing, not even that it has got what was sent, before its
// connections are lost: then a commit that waits for it is looked up, and made again over another one. By themselves systems
// wait for a quarter of an hour.
const silence = 15 * time.Second

// dialer connects to databases.
var dialer = net.Dialer{Timeout: silence, Control: unanswered, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silence / 3, Interval: silence / 3, Count: 2}}
