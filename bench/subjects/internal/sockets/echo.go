package sockets

import (
	"context"
	"fmt"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stage"
)

// echoSlot is one slot of a round's order.
type echoSlot struct {
	arm               arm.Arm
	connections, size int
}

// order draws the order of one round: cells are shuffled, and the arms within
// each, so that all arms of a cell follow each other.
func (r *runner) order() []echoSlot {
	var cells []echoSlot
	for _, n := range r.plan.Connections {
		for _, size := range r.plan.Sizes {
			cells = append(cells, echoSlot{connections: n, size: size})
		}
	}
	stage.Shuffle(r.Random, cells)
	var order []echoSlot
	for _, c := range cells {
		arms := r.plan.of(arm.Echo)
		stage.Shuffle(r.Random, arms)
		for _, a := range arms {
			c.arm = a
			order = append(order, c)
		}
	}
	return order
}

// echoes measures all slots, with all servers up and one client for all of them.
func (r *runner) echoes(ctx context.Context) error {
	defer r.Stop()
	began := time.Now()
	c, err := startClient(r.Places.Bin)
	if err != nil {
		return err
	}
	defer c.stop()
	for _, a := range r.plan.of(arm.Echo) {
		server, err := r.start(ctx, a, arm.Echo, "")
		if err != nil {
			return err
		}
		r.Servers[a.Name] = server
		for _, size := range r.plan.Sizes {
			if _, err := echo(ctx, server, c, r.plan.Connections[0], size, r.plan.Warm); err != nil {
				return fmt.Errorf("warming up %s: %w", a.Name, err)
			}
		}
	}
	for round := 1; round <= r.plan.Rounds; round++ {
		start := time.Now()
		for _, s := range r.order() {
			got, err := echo(ctx, r.Servers[s.arm.Name], c, s.connections, s.size, r.plan.Slot)
			if err != nil {
				return fmt.Errorf("%s, %d connections, %d bytes: %w", s.arm.Name, s.connections, s.size, err)
			}
			got.Round, got.Arm = round, s.arm.Name
			r.found.Echoes = append(r.found.Echoes, got)
			r.Meter.Step(r.plan.echoTime(), "round %d, %4d bytes, %4d connections: %-9s %7.0f messages/s, %5.2f µs each (client %5.2f), %d failed",
				round, s.size, s.connections, s.arm.Name, float64(got.Messages)/got.Took.Seconds(),
				each(got.Server.Total, got.Messages), each(got.Client.Total, got.Messages), got.Failed)
		}
		if round < r.plan.Rounds && !r.fits(EchoPart, began, start, echoBudget, round) {
			r.Run.Rounds = round
			break
		}
	}
	return r.Alive()
}

// each is a time by a number, in µs.
func each(d time.Duration, n uint64) float64 { return d.Seconds() * 1e6 / float64(n) }

// echo measures one slot, on connections of its own.
func echo(ctx context.Context, server *arm.Running, c *client, connections, size int, d time.Duration) (record.SocketEcho, error) {
	got := record.SocketEcho{Connections: connections, Size: size}
	state, err := c.open(ctx, opening(server.Env.Address, connections))
	if err != nil {
		return got, err
	}
	if state.Open == 0 {
		return got, fmt.Errorf("no connection opened: %s", state.First)
	}
	if err := stage.Sleep(ctx, settle); err != nil {
		return got, err
	}
	before, err := read(server, c)
	if err != nil {
		return got, err
	}
	echoed, err := c.echo(ctx, size, d)
	if err != nil {
		return got, err
	}
	after, err := read(server, c)
	if err != nil {
		return got, err
	}
	got.SocketUse = after.use(before)
	got.Messages, got.Took = echoed.Messages, echoed.Took
	got.P50, got.P99, got.Max = echoed.Trip.P50, echoed.Trip.P99, echoed.Trip.Max
	got.Failed, got.First = echoed.Failed+uint64(state.Failed), state.First
	if got.First == "" {
		got.First = echoed.First
	}
	if got.Messages == 0 {
		return got, fmt.Errorf("no message came back: %s", got.First)
	}
	if _, err := c.close(ctx); err != nil {
		return got, err
	}
	return got, server.Alive()
}
