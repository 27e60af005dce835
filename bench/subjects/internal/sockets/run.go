package sockets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/proc"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stage"
)

// Where the servers have their WebSockets.
const (
	echoPath    = "/echo"
	channelPath = "/ws"
	channel     = "bench"
)

// runner is a run under way.
type runner struct {
	*stage.Stage
	plan     Plan
	found    *record.Sockets
	folders  int // given to servers
	commands map[string]bool
}

// Run carries out the plan and returns what was measured. It stops what it
// started, also when ctx ends it early.
func Run(ctx context.Context, p Plan, places stage.Places, out io.Writer) (*record.Run, error) {
	steps, total := p.steps()
	s, err := stage.New("ws", p.Plan, places, steps, total, out)
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	r := &runner{Stage: s, plan: p, commands: map[string]bool{}, found: &record.Sockets{
		Parts: p.Parts, Rest: p.Rest, CastRounds: p.CastRounds, Data: data,
	}}
	s.Run.Sockets = r.found
	for _, a := range p.Arms {
		s.Run.Arms = append(s.Run.Arms, record.Arm{Name: a.Name, Title: a.Title, Program: string(a.Program), Ours: a.Ours()})
	}
	if p.Short != "" {
		r.note("%s", p.Short)
	}
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{{EchoPart, r.echoes}, {BroadcastPart, r.casts}, {IdlePart, r.idle}, {RampPart, r.ramps}} {
		if !p.has(part.name) {
			continue
		}
		err := part.run(ctx)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil { // the other parts are not lost for that
			r.note("%s ended early: %v", part.name, err)
		}
	}
	if len(r.found.Echoes)+len(r.found.Casts)+len(r.found.Idle)+len(r.found.Ramps) == 0 {
		return nil, errors.New("nothing was measured")
	}
	r.Run.Took = r.Meter.Took()
	return r.Run, nil
}

// start starts a server; upstream is for the mode Proxy. The caller stops it.
func (r *runner) start(ctx context.Context, a arm.Arm, m arm.Mode, upstream string) (*arm.Running, error) {
	r.folders++
	server, err := r.StartOne(ctx, a, fmt.Sprintf("%s-%d", a.Name, r.folders), arm.Env{Mode: m, Upstream: upstream})
	if err != nil {
		return nil, err
	}
	if key := a.Name + " " + string(m); !r.commands[key] {
		r.commands[key] = true
		r.found.Commands = append(r.found.Commands, record.SocketCommand{Arm: a.Name, Mode: string(m), Command: r.Placeholders(server)})
	}
	return server, nil
}

// note keeps a sentence for the reader, and prints it.
func (r *runner) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.found.Notes = append(r.found.Notes, text)
	r.Meter.Say("%s", text)
}

// reading is what is read before and after a slot.
type reading struct {
	at             time.Time
	server, client proc.CPU
	load           proc.Load
}

func read(server *arm.Running, c *client) (now reading, err error) {
	now.at = time.Now()
	if now.load, err = proc.ReadLoad(); err != nil {
		return now, err
	}
	if now.client, err = c.cpu(); err != nil {
		return now, err
	}
	now.server, err = server.CPU()
	return now, err
}

// use is what was used since before.
func (now reading) use(before reading) record.SocketUse {
	machine := now.load.Sub(before.load)
	u := record.SocketUse{
		Server: now.server.Sub(before.server), Client: now.client.Sub(before.client),
		Wall: now.at.Sub(before.at), Steal: machine.Steal,
	}
	u.Other = max(0, machine.Busy-u.Server.Total-u.Client.Total)
	return u
}

// fits tells whether another round like the last one ends within the budget of a
// part; if not, it says so to the reader.
func (r *runner) fits(part string, began, round time.Time, budget time.Duration, done int) bool {
	if now := time.Now(); now.Sub(began)+now.Sub(round) <= budget {
		return true
	}
	r.note("%s: only %d rounds, the time for more was over", part, done)
	return false
}

// settle is how long a server rests between what is counted and what is not.
const settle = 100 * time.Millisecond
