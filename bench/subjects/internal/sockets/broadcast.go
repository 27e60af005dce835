package sockets

import (
	"context"
	"fmt"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stage"
	"millrace/bench/subjects/internal/wsload"
)

// casts measures publishing to many, with all servers up and one client for all
// of them.
func (r *runner) casts(ctx context.Context) error {
	defer r.Stop()
	began := time.Now()
	c, err := startClient(r.Places.Bin)
	if err != nil {
		return err
	}
	defer c.stop()
	arms := r.plan.of(arm.Channels)
	for _, a := range arms {
		server, err := r.start(ctx, a, arm.Channels, "")
		if err != nil {
			return err
		}
		r.Servers[a.Name] = server
	}
	for round := 1; round <= r.plan.CastRounds; round++ {
		start := time.Now()
		casts := append([]Cast(nil), r.plan.Casts...)
		stage.Shuffle(r.Random, casts)
		for _, cast := range casts {
			stage.Shuffle(r.Random, arms)
			for _, a := range arms {
				if err := r.cast(ctx, r.Servers[a.Name], c, cast, round); err != nil {
					return fmt.Errorf("%s, %d subscribers: %w", a.Name, cast.Subscribers, err)
				}
			}
		}
		if round < r.plan.CastRounds && !r.fits(BroadcastPart, began, start, broadcastBudget, round) {
			r.found.CastRounds = round
			break
		}
	}
	return r.Alive()
}

// cast opens the subscribers of one server, and publishes to them at each pace.
func (r *runner) cast(ctx context.Context, server *arm.Running, c *client, cast Cast, round int) error {
	order := opening(server.Env.Address, cast.Subscribers)
	order.Path = channelPath
	if server.Arm.Ours() {
		order.Subscribe = channel
	}
	state, err := c.open(ctx, order)
	if err != nil {
		return err
	}
	if state.Open == 0 {
		return fmt.Errorf("no connection opened: %s", state.First)
	}
	if err := stage.Sleep(ctx, settle); err != nil {
		return err
	}
	// What is done for the first time is done before anything counts.
	if _, err := publish(ctx, server, c, 100*time.Millisecond, 2); err != nil {
		return err
	}
	text := ""
	for _, every := range cast.Every {
		got, err := publish(ctx, server, c, every, max(1, int(cast.Length/every)))
		if err != nil {
			return err
		}
		got.Round, got.Subscribers = round, cast.Subscribers
		// Who could not connect gets nothing.
		got.Lost += uint64(state.Failed) * got.Published
		if got.First == "" {
			got.First = state.First
		}
		r.found.Casts = append(r.found.Casts, got)
		text += fmt.Sprintf("; every %v: %5.2f µs each (client %5.2f), lag %v/%v/%v, %d lost", every,
			each(got.Server.Total, got.Delivered), each(got.Client.Total, got.Delivered),
			got.P50.Round(time.Microsecond*100), got.P99.Round(time.Microsecond*100), got.Max.Round(time.Microsecond*100), got.Lost)
	}
	if _, err := c.close(ctx); err != nil {
		return err
	}
	r.Meter.Step(r.plan.castTime(cast), "round %d, 1 to %d: %-9s %s", round, cast.Subscribers, server.Arm.Name, text[2:])
	return server.Alive()
}

// publish measures one slot.
func publish(ctx context.Context, server *arm.Running, c *client, every time.Duration, count int) (record.SocketCast, error) {
	got := record.SocketCast{Arm: server.Arm.Name, Every: every}
	before, err := read(server, c)
	if err != nil {
		return got, err
	}
	order := wsload.Order{Broadcast: &wsload.Broadcast{
		URL: server.URL("/publish?channel=" + channel), Every: every, Count: count, Size: data,
	}}
	cast, err := ask[wsload.Broadcasted](ctx, c, order, time.Duration(count)*every)
	if err != nil {
		return got, err
	}
	after, err := read(server, c)
	if err != nil {
		return got, err
	}
	got.SocketUse = after.use(before)
	got.Published, got.Refused, got.First = cast.Published, cast.Refused, cast.First
	got.Delivered, got.Lost, got.Doubled, got.Took = cast.Delivered, cast.Lost, cast.Doubled, cast.Took
	got.P50, got.P99, got.Max = cast.Lag.P50, cast.Lag.P99, cast.Lag.Max
	if got.Delivered == 0 {
		return got, fmt.Errorf("nothing was delivered: %d published, %d refused %s", got.Published, got.Refused, got.First)
	}
	return got, nil
}
