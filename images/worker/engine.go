package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/images/picture"
)

// An engine is what converts, in a child or, without children, in the server.
type engine struct {
	abilities Abilities
	converter *convert.Converter
}

// newEngine makes the encoders that h asks for: tested, or, where it is known
// what they can, at their first use.
func newEngine(ctx context.Context, h hello) (*engine, error) {
	levels := []string{h.Level}
	if h.Level == "" || h.Level == "auto" {
		levels = []string{"tools", "embedded"}
	}
	var encoders []codec.Encoder
	var missing []error
	var tools []codec.Tested
	for _, level := range levels {
		l := &lazy{level: level, memory: 2 * h.Memory, known: h.Known}
		if h.Known == nil {
			if err := l.open(ctx); err != nil {
				missing = append(missing, err)
				continue
			}
		}
		if t, ok := l.encoder.(*codec.Tools); ok {
			tools = t.Tested()
		}
		encoders = append(encoders, l)
	}
	if len(encoders) == 0 {
		return nil, errors.Join(missing...)
	}
	e := &engine{converter: &convert.Converter{Encoder: codec.Combine(encoders...)}}
	if h.Known != nil {
		e.abilities = *h.Known
		return e, nil
	}
	e.abilities = Abilities{Level: e.converter.Encoder.Level(), Formats: map[codec.Format]EncoderInfo{}, Tools: tools}
	for f, by := range e.converter.Encoder.Formats() {
		e.abilities.Formats[f] = EncoderInfo{Level: codec.LevelOf(e.converter.Encoder, f), By: by}
	}
	return e, nil
}

// convert converts a source that is in memory.
func (e *engine) convert(ctx context.Context, source []byte, s convert.Spec) (*convert.Result, error) {
	return e.converter.Convert(ctx, source, s)
}

// convertHere converts in this process.
func (e *engine) convertHere(ctx context.Context, src Source, s convert.Spec) (*convert.Result, error) {
	begin, used := time.Now(), convert.CPUTime()
	source := make([]byte, src.Size)
	if n, err := io.ReadFull(src.Reader, source); err != nil {
		return nil, sourceError{fmt.Errorf("%w after %d bytes of %d", noEOF(err), n, src.Size)}
	}
	res, err := e.convert(ctx, source, s)
	if err != nil {
		return nil, err
	}
	res.Wall = time.Since(begin)
	// Others use this process, too: a conversion works on one core.
	res.CPU = min(convert.CPUTime()-used, res.Wall)
	return res, nil
}

// lazy is a level whose encoder is made when it is first needed: testing the commands
// starts each of them, for which a worker with a small image should not wait. What the
// first worker found out is passed on to later ones.
type lazy struct {
	level  string
	memory int64
	known  *Abilities

	once    sync.Once
	encoder codec.Encoder
	err     error
}

// open makes the encoder once. A level that is not there is ErrUnsupported, so
// that the next one is asked.
func (l *lazy) open(ctx context.Context) error {
	l.once.Do(func() {
		switch l.level {
		case "tools":
			l.encoder, l.err = l.openTools(ctx)
		case "embedded":
			l.encoder, l.err = codec.NewEmbedded(ctx)
		default:
			l.err = fmt.Errorf("image engine %q: it is auto, tools or embedded", l.level)
		}
	})
	return l.err
}

// openTools tests the commands, unless it is known which of them work.
func (l *lazy) openTools(ctx context.Context) (codec.Encoder, error) {
	o := codec.ToolOptions{Memory: l.memory}
	if l.known != nil {
		if len(l.known.Tools) == 0 {
			return nil, fmt.Errorf("%w: none of the commands works", codec.ErrUnsupported)
		}
		o.Tested = l.known.Tools
	}
	return codec.NewTools(ctx, o)
}

func (l *lazy) Level() string { return l.level }

func (l *lazy) Formats() map[codec.Format]string {
	if l.known == nil {
		return l.encoder.Formats()
	}
	formats := map[codec.Format]string{}
	for f, a := range l.known.Formats {
		if a.Level == l.level {
			formats[f] = a.By
		}
	}
	return formats
}

func (l *lazy) Encode(ctx context.Context, p *picture.Picture, o codec.Params) ([]byte, error) {
	if err := l.open(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", codec.ErrUnsupported, err)
	}
	return l.encoder.Encode(ctx, p, o)
}

func (l *lazy) Animate(ctx context.Context, file []byte, o codec.Params, shape codec.Shape) ([]byte, error) {
	if err := l.open(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", codec.ErrUnsupported, err)
	}
	return l.encoder.Animate(ctx, file, o, shape)
}
