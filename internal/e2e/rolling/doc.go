// Package rolling restarts proxies under load, one after the other, behind a
// balancer: no call that was sent may go without its answer.
package rolling
