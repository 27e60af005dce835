package engine

import (
	"io"

	"millrace/internal/observe/trace"
	"millrace/internal/ops/otlp"
	"millrace/internal/server"
)

// follow is what observes requests: tracing and the store of slow ones. The exporter is
// reused while its options are the same.
func (b *builder) follow() (f server.Tracing, err error) {
	tracing := b.config.Tracing
	if !slowOptions(b.config).Off {
		f.Slow = b.server.slow
	}
	f.Tracer = trace.New(tracing, b.config.RequestID, f.Slow != nil)
	if tracing == nil || tracing.OTLP == "" {
		return f, nil
	}
	s := b.server
	e, err := reuseOrOpen(b, keyOf("otlp", tracing), func() (*otlp.Exporter, io.Closer, error) {
		e, err := otlp.Open(*tracing, s.options.Version, &s.meters.Tracing, func(err error) {
			s.errors.Warn("spans are not sent; they are counted in millrace_traces_total", "err", err)
		})
		return e, e, err
	})
	if err != nil {
		return f, err //nolint:wrapcheck // it names the key
	}
	f.Spans = e.Add
	return f, nil
}
