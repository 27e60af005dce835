package sockets

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/proc"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/wsload"
)

// climb is one ramp: so many connections to so many processes of an arm.
type climb struct {
	arm         arm.Arm
	servers     int
	connections int
}

// rampSize is how many bytes are echoed on each connection.
const rampSize = 20

// ramps opens as many connections as there may be, echoes once on each, and
// closes them.
func (r *runner) ramps(ctx context.Context) error {
	for _, what := range r.plan.climbs() {
		got, err := r.ramp(ctx, what)
		if err != nil {
			return fmt.Errorf("%s, %d connections: %w", what.arm.Name, what.connections, err)
		}
		r.found.Ramps = append(r.found.Ramps, got)
		r.Meter.Step(what.time(), "%d connections to %d processes: %-9s opened in %.1f s, echoed in %.1f s, %d failed%s",
			what.connections, what.servers, what.arm.Name, got.Opened.Seconds(), got.Echoing.Seconds(), got.Failed, afterColon(got.First))
	}
	return nil
}

// party is the servers of a ramp, and a client for each.
type party struct {
	servers []*arm.Running
	clients []*client
}

func (p *party) stop() {
	for _, c := range p.clients {
		c.stop()
	}
	for _, s := range p.servers {
		s.Stop()
	}
}

// ramp is one ramp, from starting to stopping.
func (r *runner) ramp(ctx context.Context, what climb) (got record.SocketRamp, err error) {
	p := &party{}
	defer p.stop()
	for range what.servers {
		server, err := r.start(ctx, what.arm, arm.Echo, "")
		if err != nil {
			return got, err
		}
		p.servers = append(p.servers, server)
		c, err := startClient(r.Places.Bin)
		if err != nil {
			return got, err
		}
		p.clients = append(p.clients, c)
	}
	got = record.SocketRamp{Arm: what.arm.Name, Servers: what.servers, Connections: what.connections}
	var cpuBefore, cpuAfter, clientAfter proc.CPU
	if cpuBefore, got.Before, err = p.usage(); err != nil {
		return got, err
	}
	start := time.Now()
	if _, err := together(p, func(i int, c *client) (wsload.State, error) { return c.open(ctx, what.order(i, p)) }); err != nil {
		return got, err
	}
	got.Opened = time.Since(start)
	echoing := time.Now()
	echoed, err := together(p, func(_ int, c *client) (wsload.Echoed, error) { return c.echo(ctx, rampSize, 0) })
	if err != nil {
		return got, err
	}
	got.Echoing = time.Since(echoing)
	if cpuAfter, got.Held, err = p.usage(); err != nil {
		return got, err
	}
	for _, c := range p.clients {
		cpu, err := c.cpu()
		if err != nil {
			return got, err
		}
		clientAfter = proc.CPU{Total: clientAfter.Total + cpu.Total, User: clientAfter.User + cpu.User, Kernel: clientAfter.Kernel + cpu.Kernel}
	}
	got.Server, got.Client = cpuAfter.Sub(cpuBefore), clientAfter
	closed, err := together(p, func(_ int, c *client) (wsload.State, error) { return c.close(ctx) })
	if err != nil {
		return got, err
	}
	for i := range p.clients {
		got.Echoed += int(echoed[i].Messages)
		got.Unclean += closed[i].Unclean
		for _, why := range []string{closed[i].First, echoed[i].First} {
			if got.First == "" {
				got.First = why
			}
		}
	}
	got.Failed = got.Connections - got.Echoed
	return got, nil
}

// order is what client i of a ramp opens: its share, from addresses of its own.
func (w climb) order(i int, p *party) wsload.Open {
	share := w.connections*(i+1)/w.servers - w.connections*i/w.servers
	o := opening(p.servers[i].Env.Address, share)
	o.FirstSource += i * sources
	o.Busy = max(1, busy/w.servers)
	return o
}

// usage is what all servers have used and hold.
func (p *party) usage() (cpu proc.CPU, held proc.Memory, err error) {
	for _, s := range p.servers {
		c, err1 := s.CPU()
		m, err2 := s.Memory()
		if err := errors.Join(err1, err2); err != nil {
			return cpu, held, errors.Join(err, s.Alive())
		}
		cpu = proc.CPU{Total: cpu.Total + c.Total, User: cpu.User + c.User, Kernel: cpu.Kernel + c.Kernel}
		held.RSS, held.PSS = held.RSS+m.RSS, held.PSS+m.PSS
	}
	return cpu, held, nil
}

// together has all clients do something at the same time.
func together[T any](p *party, do func(int, *client) (T, error)) ([]T, error) {
	answers, errs := make([]T, len(p.clients)), make([]error, len(p.clients))
	var all sync.WaitGroup // of one goroutine for each client
	for i, c := range p.clients {
		all.Go(func() { answers[i], errs[i] = do(i, c) })
	}
	all.Wait()
	return answers, errors.Join(errs...)
}
