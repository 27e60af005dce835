package subject

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
)

// TestThreadEnds: the end of the thread that called Start is not ours.
func TestThreadEnds(t *testing.T) {
	address := freeAddress(t)
	var p *Process
	var err error
	gone := make(chan int)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends
		p, err = Start(t.Context(), helper("listen", address), address, startTime)
		gone <- syscall.Gettid()
	}()
	thread := <-gone
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	for exists(fmt.Sprintf("/proc/self/task/%d", thread)) && thread != os.Getpid() {
		runtime.Gosched()
	}
	mustConnect(t, address)
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}
