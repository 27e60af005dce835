//go:build !small

package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// pool has the instances of a module.
type pool struct {
	slots chan struct{} // one for each instance that serves a request
	mu    sync.Mutex
	idle  []*instance // a stack: the one that worked last is still in the processor's cache
}

// errBusy: all instances serve requests.
var errBusy = errors.New("all instances are busy")

// take returns an instance for a request, which must end in put.
func (p *Plugin) take(ctx context.Context) (*instance, error) {
	select {
	case p.pool.slots <- struct{}{}:
	default:
		late := time.NewTimer(p.options.Timeout)
		defer late.Stop()
		select {
		case p.pool.slots <- struct{}{}:
		case <-late.C:
			p.meters.Refused.Add(0, 1)
			return nil, errBusy
		case <-ctx.Done():
			return nil, context.Cause(ctx) //nolint:wrapcheck // the client has gone
		}
	}
	p.meters.Requests.Add(0, 1)
	p.meters.Busy.Add(1)
	p.pool.mu.Lock()
	if n := len(p.pool.idle); n > 0 {
		i := p.pool.idle[n-1]
		p.pool.idle = p.pool.idle[:n-1]
		p.pool.mu.Unlock()
		return i, nil
	}
	p.pool.mu.Unlock()
	i, err := p.start()
	if err != nil {
		p.meters.Starts.Add(0, 1)
		p.meters.Busy.Add(-1)
		<-p.pool.slots
	}
	return i, err
}

// put ends what take began. An instance that has failed is closed.
func (p *Plugin) put(i *instance) {
	i.exchange = exchange{}
	if i.failed {
		_ = i.module.Close(context.Background()) // it was of no use any more
	} else {
		p.pool.mu.Lock()
		p.pool.idle = append(p.pool.idle, i)
		p.pool.mu.Unlock()
	}
	p.meters.Busy.Add(-1)
	<-p.pool.slots
}

// instance is one running guest: its memory, and the request that it serves.
type instance struct {
	*Plugin
	module            api.Module
	request, response api.Function
	watch             watch
	features          features // that it has asked for as it started
	failed            bool     // a call has ended in its midst: what its memory holds is not known
	exchange
}

// start makes an instance.
func (p *Plugin) start() (*instance, error) {
	i := &instance{Plugin: p}
	i.watch.owner, i.watch.end = i, make(chan struct{})
	i.watch.timer = time.AfterFunc(startTimeout, i.watch.expire)
	defer i.watch.pause()
	var err error
	i.module, err = p.runtime.InstantiateModule(&i.watch, p.code, wazero.NewModuleConfig().
		WithName(""). // several may be there
		WithStartFunctions("_initialize", "_start").
		WithStdout(printed{i}).WithStderr(printed{i}).
		WithSysWalltime().WithSysNanotime())
	switch {
	case i.watch.expired.Load():
		return nil, fmt.Errorf("it has not started within %s", startTimeout)
	case err != nil:
		return nil, errors.New("it does not start: " + brief(err))
	case i.module.IsClosed():
		return nil, errors.New("it has ended as it started: a module has to stay")
	}
	i.request, i.response = i.module.ExportedFunction(handleRequest), i.module.ExportedFunction(handleResponse)
	return i, nil
}

// printed logs what a guest prints, such as why its language's runtime gives up.
type printed struct{ by *instance }

// Write implements [io.Writer].
func (a printed) Write(p []byte) (int, error) {
	if text := bytes.TrimSpace(p[:min(len(p), maxMessage)]); len(text) > 0 && a.by.mayLog(len(text)) {
		a.by.log.Info("a plugin prints", "text", string(text))
	}
	return len(p), nil
}

// call calls the guest. The error is what it has failed with.
func (i *instance) call(f api.Function, stack ...uint64) (result uint64, err error) {
	var room [2]uint64
	n := copy(room[:], stack)
	i.watch.begin(i.options.Timeout)
	err = f.CallWithStack(&i.watch, room[:max(n, 1)])
	if !i.watch.pause() || err != nil {
		i.failed = true
	}
	if i.watch.expired.Load() {
		i.meters.Timeouts.Add(0, 1)
		return 0, fmt.Errorf("it has computed for longer than %s (timeout)", i.options.Timeout)
	}
	if f := new(fault); err != nil && (!errors.As(err, &f) || f.status == 0) { // else it is the client's
		i.meters.Traps.Add(0, 1)
	}
	return room[0], err //nolint:wrapcheck // it is the guest's
}

// watch is the context of an instance's calls: it ends when a call computes for too long,
// and then the guest is stopped. It lives as long as its instance, so that a call makes no
// context.
type watch struct {
	owner   *instance
	timer   *time.Timer
	end     chan struct{}
	expired atomic.Bool
	began   time.Time
	left    time.Duration
}

// begin begins a call, which may compute for as long as limit says.
func (w *watch) begin(limit time.Duration) {
	w.left = limit
	w.resume()
}

// resume has the time count again.
func (w *watch) resume() {
	w.began = time.Now()
	w.timer.Reset(w.left)
}

// pause stops the time. It returns false if it was over.
func (w *watch) pause() bool {
	w.left = max(w.left-time.Since(w.began), time.Millisecond)
	return w.timer.Stop()
}

// expire ends the call.
func (w *watch) expire() {
	w.expired.Store(true)
	close(w.end)
}

// Deadline implements [context.Context].
func (w *watch) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements [context.Context].
func (w *watch) Done() <-chan struct{} { return w.end }

// Err implements [context.Context].
func (w *watch) Err() error {
	if w.expired.Load() {
		return context.DeadlineExceeded
	}
	return nil
}

type instanceKey struct{}

// Value implements [context.Context].
func (w *watch) Value(key any) any {
	if _, ok := key.(instanceKey); ok {
		return w.owner
	}
	return nil
}
