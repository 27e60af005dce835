package sockets

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stage"
)

// rest is one server whose idle connections are held.
type rest struct {
	arm         arm.Arm
	mode        arm.Mode
	connections int
}

// restingAtOnce is how many servers may hold their connections at the same time:
// memory does not mind, and the others need not wait.
const restingAtOnce = 4

// resting is a server at rest, with what there is to stop.
type resting struct {
	rest
	servers []*arm.Running // the measured one last
	client  *client
	got     record.SocketIdle
}

func (s *resting) stop() {
	if s.client != nil {
		s.client.stop()
	}
	for _, server := range s.servers {
		server.Stop()
	}
}

func (s *resting) server() *arm.Running { return s.servers[len(s.servers)-1] }

// idle measures what quiet connections cost. Servers are filled one after the
// other, and rest side by side.
func (r *runner) idle(ctx context.Context) error {
	list := r.plan.rests()
	stage.Shuffle(r.Random, list)
	room := make(chan struct{}, restingAtOnce)
	var all sync.WaitGroup // of one goroutine for each server at rest
	var mu sync.Mutex      // guards what the goroutines write
	var failed error
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, what := range list {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
		}
		s := &resting{rest: what}
		err := ctx.Err()
		if err == nil {
			err = r.fill(ctx, s)
		}
		if err != nil {
			s.stop()
			mu.Lock()
			failed = errors.Join(failed, fmt.Errorf("%s, %s: %w", what.arm.Name, what.mode, err))
			mu.Unlock()
			cancel(err)
			break
		}
		all.Go(func() {
			err := r.wait(ctx, s)
			s.stop()
			mu.Lock()
			defer mu.Unlock()
			<-room
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s, %s: %w", s.arm.Name, s.mode, err))
				cancel(err)
				return
			}
			r.found.Idle = append(r.found.Idle, s.got)
			r.Meter.Step(r.plan.restTime(s.rest), "%d idle connections, %s: %-9s %.0f bytes each (at most %.0f), opened in %.1f s%s",
				s.got.Open, s.mode, s.arm.Name, s.got.Each(), s.got.AtMost(), s.got.Opened.Seconds(), afterColon(s.got.First))
		})
	}
	all.Wait()
	return failed
}

func afterColon(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// fill starts a server, and what it is in front of, lets it do everything once,
// and opens the connections.
func (r *runner) fill(ctx context.Context, s *resting) error {
	upstream := ""
	if s.mode == arm.Proxy {
		behind, err := r.start(ctx, r.behind(), arm.Echo, "")
		if err != nil {
			return err
		}
		s.servers = append(s.servers, behind)
		upstream = behind.Env.Address
	}
	server, err := r.start(ctx, s.arm, s.mode, upstream)
	if err != nil {
		return err
	}
	s.servers = append(s.servers, server)
	if s.client, err = startClient(r.Places.Bin); err != nil {
		return err
	}
	s.got = record.SocketIdle{Arm: s.arm.Name, Mode: string(s.mode), Connections: s.connections}
	if s.got.Fresh, err = server.Memory(); err != nil {
		return err
	}
	order := opening(server.Env.Address, min(warmUp, s.connections))
	order.TLS = s.mode == arm.TLS
	if s.mode == arm.Channels {
		order.Path, order.Subscribe = channelPath, channel
	}
	if _, err := s.client.open(ctx, order); err != nil {
		return err
	}
	if _, err := s.client.close(ctx); err != nil {
		return err
	}
	if err := stage.Sleep(ctx, 10*settle); err != nil {
		return err
	}
	if s.got.Before, err = server.Memory(); err != nil {
		return err
	}
	order.Connections = s.connections
	state, err := s.client.open(ctx, order)
	s.got.Opened, s.got.First = state.Took, state.First
	return err
}

// behind is the echo that proxies are in front of: ours, or the first there is.
func (r *runner) behind() arm.Arm {
	echoes := r.plan.of(arm.Echo)
	for _, a := range echoes {
		if a.Ours() {
			return a
		}
	}
	if len(echoes) > 0 {
		return echoes[0]
	}
	all, _ := arm.Find(arm.Sockets(), []string{"gws"})
	return all[0]
}

// wait lets the server rest, and reads its memory.
func (r *runner) wait(ctx context.Context, s *resting) error {
	if err := stage.Sleep(ctx, r.plan.Rest); err != nil {
		return err
	}
	var err error
	if s.got.After, err = s.server().Memory(); err != nil {
		return err
	}
	state, err := s.client.state(ctx)
	if err != nil {
		return err
	}
	s.got.Open = state.Open
	if s.got.First == "" {
		s.got.First = state.First
	}
	if s.got.Open == 0 {
		return fmt.Errorf("no connection is open: %s", s.got.First)
	}
	return s.server().Alive()
}
