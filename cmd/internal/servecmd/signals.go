package servecmd

import (
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// signalQueue holds what came while one signal was being served. More than a
	// few at once say nothing new.
	signalQueue = 8
	// startGrace is how long a server that is asked to stop before it is up may
	// take to come up, and then stop in good order.
	startGrace = 3 * time.Second
	// So many requests to stop end a server at once, whatever it is doing: one
	// drains, the next cuts off, and no more than that is waited for.
	stopsBeforeUp = 2
	stopsWhenUp   = 3
)

// Signals are those that a server knows. They are taken before anything else is
// done: one that comes early must not kill what is about to start.
type Signals struct {
	exit  func() // ends the process
	nohup bool   // SIGHUP was ignored before they were taken
	taken chan os.Signal
	out   chan os.Signal // for the server, which may be busy
	up    atomic.Bool    // the server serves
	quit  chan struct{}
	done  chan struct{} // closed when watch has ended; nil before it begins
}

// TakeSignals begins to take them. exit ends the process.
func TakeSignals(exit func()) *Signals {
	s := &Signals{exit: exit, nohup: signal.Ignored(syscall.SIGHUP), taken: make(chan os.Signal, signalQueue), out: make(chan os.Signal, signalQueue)}
	signal.Notify(s.taken, serverSignals()...)
	return s
}

// Release is for commands that serve nothing: signals do what they do to any
// program, those that have come included.
func (s *Signals) Release() {
	signal.Stop(s.taken)
	if s.nohup {
		signal.Ignore(syscall.SIGHUP)
	}
	for {
		select {
		case sig := <-s.taken:
			raise(sig)
		default:
			return
		}
	}
}

// begin has signals handed on until stop, and exit called where somebody asks to
// stop and the server does not get to it: it hangs, in its start or in a reload.
func (s *Signals) begin(exit func()) {
	signal.Notify(s.taken, serverSignals()...)
	s.quit, s.done = make(chan struct{}), make(chan struct{})
	go s.watch(exit) // ends with stop, or with the process
}

// watch is what begin starts.
func (s *Signals) watch(exit func()) {
	defer close(s.done)
	var late <-chan time.Time
	for asked := 0; ; {
		select {
		case sig := <-s.taken:
			if isStop(sig) {
				if asked++; asked == 1 && !s.up.Load() {
					late = time.After(startGrace)
				}
				if asked >= stopsWhenUp || asked >= stopsBeforeUp && !s.up.Load() {
					exit()
					return
				}
			}
			select {
			case s.out <- sig:
			default: // enough of them wait
			}
		case <-late:
			if !s.up.Load() {
				exit()
				return
			}
		case <-s.quit:
			return
		}
	}
}

// stop ends watch.
func (s *Signals) stop() {
	close(s.quit)
	<-s.done
	signal.Stop(s.taken)
}

// letGo ends watch. Signals do what they do to any program, those that have come
// included.
func (s *Signals) letGo() {
	s.stop()
	s.Release()
	for {
		select {
		case sig := <-s.out:
			raise(sig)
		default:
			return
		}
	}
}

// isStop: all that a server knows and that means nothing else.
func isStop(s os.Signal) bool { return !isReload(s) && !isReopen(s) && !isProfile(s) }
