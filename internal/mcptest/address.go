package mcptest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
)

// A block is a range of ports below those that systems give to outgoing
// connections, so that none of it is taken by chance between being found free and
// being listened at. A process holds a block by listening at its first port, so
// that test processes side by side never look in the same one.
const (
	firstBlock = 10_000
	blockSize  = 100
	blockCount = 220
)

var block struct {
	mu   sync.Mutex
	held []net.Listener // of all blocks until the process ends
	next int            // the port to try next
}

// FreeAddress returns a loopback address that nothing listens at, and that no
// other call of any test process returns while this one lives, for programs that
// cannot be told to choose one themselves.
func FreeAddress(t testing.TB) string {
	t.Helper()
	block.mu.Lock()
	defer block.mu.Unlock()
	for range blockCount * blockSize {
		if block.next%blockSize == 0 {
			holdFreeBlock(t)
		}
		address := loopback(block.next)
		block.next++
		if isFree(address) {
			return address
		}
	}
	t.Fatal("finding a free port: all are taken")
	return ""
}

// isFree reports whether nothing listens at the address. No process begins meanwhile: until it has become its own
// program it would go on to listen there, and who connects would be told so, and then be cut off.
func isFree(address string) bool {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	listener.Close()
	return true
}

func holdFreeBlock(t testing.TB) {
	t.Helper()
	for range 4 * blockCount {
		first := firstBlock + blockSize*rand.IntN(blockCount)
		if listener, err := net.Listen("tcp", loopback(first)); err == nil {
			block.held, block.next = append(block.held, listener), first+1
			return
		}
	}
	t.Fatal("finding a free port: no block of ports is free")
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
