package opscmd

// This file has the verb that closes the sites of a running server for a while.

import (
	"fmt"
	"time"

	"millrace/cmd/internal/cli"
	"millrace/internal/engine"
)

// Maintenance is `millrace maintenance`.
type Maintenance struct {
	Do   string `arg:"" enum:"on,off,status" default:"status" help:"on: all sites answer 503. off: they are open again. status: which of both it is."`
	JSON bool   `name:"json" help:"Print the state as JSON."`

	cli.Flags `embed:""`
}

// MaintenanceExamples end the help of the verb.
func MaintenanceExamples() cli.Examples {
	return cli.Examples{"maintenance": {"millrace maintenance on", "millrace maintenance status", "millrace maintenance off"}}
}

// Run tells the running server.
func (c *Maintenance) Run(s cli.Streams) error {
	ctx, stop := cli.UntilInterrupted()
	defer stop()
	r, err := c.FindAny(ctx)
	if err != nil {
		return err
	}
	var now engine.Maintenance
	if c.Do == "status" {
		err = r.List(ctx, engine.MaintenancePath, "maintenance", &now)
	} else {
		err = r.Post(ctx, engine.MaintenancePath+c.Do, "maintenance", &now)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return s.WriteJSON(now)
	}
	text := "off"
	if now.On {
		text = "on"
	}
	switch {
	case !now.Since.IsZero():
		text += ", since " + now.Since.Format(time.DateTime)
	case now.On:
		text += ", by the config (maintenance.on)"
	}
	_, err = fmt.Fprintf(s.Out, "maintenance is %s\n", text)
	return err
}
