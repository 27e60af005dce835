package container

// sequence is what a sequence header says that a frame's header depends on: AV1, 5.5.
type sequence struct {
	reduced                 bool // reduced_still_picture_header
	still                   bool
	decoderModel            bool
	widthBits, heightBits   int
	width, height           int
	idBits                  int // 0: frames have no ids
	large                   bool
	screenTools, integerMV  int // 2: each frame says it
	orderHintBits           int
	superres, cdef, restore bool
	planes                  int
	halfX, halfY            bool
	separateUV              bool
	grain                   bool
}

func parseSequence(b []byte) (*sequence, error) {
	r := &bitReader{b: b}
	s := &sequence{}
	profile := r.f(3)
	s.still = r.flag()
	s.reduced = r.flag()
	if s.reduced {
		r.f(5) // seq_level_idx
	} else {
		s.points(r)
	}
	s.widthBits, s.heightBits = r.f(4)+1, r.f(4)+1
	s.width, s.height = r.f(s.widthBits)+1, r.f(s.heightBits)+1
	if !s.reduced && r.flag() {
		delta := r.f(4) + 2
		s.idBits = r.f(3) + delta + 1
	}
	s.large = r.flag()
	r.f(2) // enable_filter_intra, enable_intra_edge_filter
	s.screenTools, s.integerMV = 2, 2
	if !s.reduced {
		s.tools(r)
	}
	s.superres, s.cdef, s.restore = r.flag(), r.flag(), r.flag()
	s.colours(r, profile)
	s.grain = r.flag()
	if r.short || profile > 2 {
		return nil, unsound("the head of its sequence is cut off, or of the profile %d", profile)
	}
	return s, nil
}

// points reads timing and operating points.
func (s *sequence) points(r *bitReader) {
	delayBits := 0
	if r.flag() { // timing_info_present_flag
		r.f(32)
		r.f(32)
		if r.flag() { // equal_picture_interval
			zeros := 0
			for zeros < 32 && !r.short && !r.flag() {
				zeros++
			}
			r.f(zeros)
		}
		if s.decoderModel = r.flag(); s.decoderModel {
			delayBits = r.f(5) + 1
			r.f(32)
			r.f(10)
		}
	}
	displayDelay := r.flag()
	for range r.f(5) + 1 {
		r.f(12)
		if r.f(5) > 7 {
			r.f(1) // seq_tier
		}
		if s.decoderModel && r.flag() {
			r.f(delayBits)
			r.f(delayBits)
			r.f(1)
		}
		if displayDelay && r.flag() {
			r.f(4)
		}
	}
}

// tools reads what only sequences of more than a still picture have.
func (s *sequence) tools(r *bitReader) {
	r.f(4) // interintra, masked and warped motion, dual filter
	hints := r.flag()
	if hints {
		r.f(2)
	}
	if !r.flag() { // seq_choose_screen_content_tools
		s.screenTools = r.f(1)
	}
	if s.screenTools > 0 && !r.flag() { // seq_choose_integer_mv
		s.integerMV = r.f(1)
	}
	if hints {
		s.orderHintBits = r.f(3) + 1
	}
}

// colours reads color_config: 5.5.2.
func (s *sequence) colours(r *bitReader, profile int) {
	deep := r.flag()
	twelve := profile == 2 && deep && r.flag()
	mono := profile != 1 && r.flag()
	s.planes = 3
	primaries, transfer, matrix := 2, 2, 2
	if r.flag() {
		primaries, transfer, matrix = r.f(8), r.f(8), r.f(8)
	}
	switch {
	case mono:
		s.planes, s.halfX, s.halfY = 1, true, true
		r.f(1) // color_range
		return
	case primaries == 1 && transfer == 13 && matrix == 0: // RGB
	default:
		r.f(1)
		switch {
		case profile == 0:
			s.halfX, s.halfY = true, true
		case profile == 1:
		case twelve:
			if s.halfX = r.flag(); s.halfX {
				s.halfY = r.flag()
			}
		default:
			s.halfX = true
		}
		if s.halfX && s.halfY {
			r.f(2) // chroma_sample_position
		}
	}
	s.separateUV = r.flag()
}

// frame is what the header of a frame says: 5.9.
type frame struct {
	sequence           *sequence
	width, upscaled    int
	height             int
	intraCopy          bool // allow_intrabc
	cols, rows         int  // of tiles
	colsLog2, rowsLog2 int
	sizeBytes          int // of a tile's size
	quantizer          int // base_q_idx
	lossless           bool
	unknown            bool // it has what is not read here, so its end is not known
}

func (f *frame) tiles() int { return f.cols * f.rows }

// parseFrame reads the header of the one frame of a still picture, up to its end.
func parseFrame(r *bitReader, s *sequence) (*frame, error) {
	f := &frame{sequence: s}
	if !s.reduced {
		if r.flag() {
			return nil, unsound("its first frame is to be shown and has not come")
		}
		if kind := r.f(2); kind != 0 {
			return nil, unsound("its first frame is none that stands alone")
		}
		if s.decoderModel { // nothing that writes pictures has it
			f.unknown, f.cols, f.rows = true, 1, 1
			return f, nil
		}
		if !r.flag() {
			return nil, unsound("its first frame is not to be shown")
		}
	}
	noUpdate := r.flag() // disable_cdf_update
	screen := s.screenTools == 1 || s.screenTools == 2 && r.flag()
	if screen && s.integerMV == 2 {
		r.f(1)
	}
	r.f(s.idBits)
	override := !s.reduced && r.flag()
	r.f(s.orderHintBits)
	f.size(r, override)
	if screen && f.width == f.upscaled {
		f.intraCopy = r.flag()
	}
	if !s.reduced && !noUpdate {
		r.f(1) // disable_frame_end_update_cdf
	}
	if err := f.layout(r); err != nil {
		return nil, err
	}
	f.quantizers(r)
	f.filters(r)
	if !f.lossless {
		r.f(1) // tx_mode_select
	}
	r.f(1) // reduced_tx_set
	if s.grain && r.flag() {
		f.unknown = true
	}
	if r.short {
		return nil, unsound("the head of its frame is cut off")
	}
	return f, nil
}

// size reads frame_size and render_size.
func (f *frame) size(r *bitReader, override bool) {
	s := f.sequence
	f.upscaled, f.height = s.width, s.height
	if override {
		f.upscaled, f.height = r.f(s.widthBits)+1, r.f(s.heightBits)+1
	}
	f.width = f.upscaled
	if s.superres && r.flag() {
		denominator := r.f(3) + 9
		f.width = (f.upscaled*8 + denominator/2) / denominator
	}
	if r.flag() {
		r.f(32)
	}
}

// layout reads tile_info: 5.9.15. No tile is wider than 4096 pixels or larger than 4096
// by 2304, so that large pictures have several.
func (f *frame) layout(r *bitReader) error {
	const maxWidth, maxArea, most = 4096, 4096 * 2304, 64
	shift := 6
	if f.sequence.large {
		shift = 7
	}
	inBlocks := func(n int) int { return (n + 1<<shift - 1) >> shift }
	cols, rows := inBlocks(f.width), inBlocks(f.height)
	widest, largest := maxWidth>>shift, maxArea>>(2*shift)
	leastCols := log2(widest, cols)
	least := max(leastCols, log2(largest, rows*cols))
	grow := func(from, to int) int {
		for from < to && r.flag() {
			from++
		}
		return from
	}
	if r.flag() { // uniform_tile_spacing_flag
		count := func(blocks, k int) int {
			each := (blocks + 1<<k - 1) >> k
			return (blocks + each - 1) / each
		}
		f.colsLog2 = grow(leastCols, log2(1, min(cols, most)))
		f.cols = count(cols, f.colsLog2)
		f.rowsLog2 = grow(max(least-f.colsLog2, 0), log2(1, min(rows, most)))
		f.rows = count(rows, f.rowsLog2)
	} else {
		spread := func(blocks, limit int) (n, most int) {
			for at := 0; at < blocks && !r.short; n++ {
				size := r.ns(min(blocks-at, limit)) + 1
				at, most = at+size, max(most, size)
			}
			return n, most
		}
		var wide int
		f.cols, wide = spread(cols, widest)
		area := rows * cols
		if least > 0 {
			area >>= least + 1
		}
		f.rows, _ = spread(rows, max(area/max(wide, 1), 1))
		f.colsLog2, f.rowsLog2 = log2(1, f.cols), log2(1, f.rows)
	}
	if r.short || f.cols > most || f.rows > most {
		return unsound("it has %d times %d tiles", f.cols, f.rows)
	}
	if n := f.colsLog2 + f.rowsLog2; n > 0 {
		r.f(n)
		f.sizeBytes = r.f(2) + 1
	}
	return nil
}

// quantizers reads the parameters of quantization, of segments, and what blocks may
// change of them: 5.9.12 to 5.9.18.
func (f *frame) quantizers(r *bitReader) {
	s := f.sequence
	exact := true // all differences are zero
	delta := func() {
		if r.flag() && r.f(7) != 0 {
			exact = false
		}
	}
	f.quantizer = r.f(8)
	delta()
	if s.planes > 1 {
		two := s.separateUV && r.flag()
		delta()
		delta()
		if two {
			delta()
			delta()
		}
	}
	if r.flag() { // using_qmatrix
		r.f(8)
		if s.separateUV {
			r.f(4)
		}
	}
	f.lossless = f.segments(r) && exact
	if f.quantizer == 0 || !r.flag() { // delta_q_present
		return
	}
	r.f(2)
	if !f.intraCopy && r.flag() { // delta_lf_present
		r.f(3)
	}
}

// segments reads segmentation_params, and reports whether no segment has a quantizer.
func (f *frame) segments(r *bitReader) bool {
	if !r.flag() {
		return f.quantizer == 0
	}
	exact := true
	for range 8 {
		quantizer := f.quantizer
		for feature, size := range [...]int{8, 6, 6, 6, 6, 3, 0, 0} {
			if !r.flag() {
				continue
			}
			signed := feature < 5
			if !signed {
				r.f(size)
				continue
			}
			v := r.f(size + 1)
			if v >= 1<<size {
				v -= 1 << (size + 1)
			}
			if feature == 0 {
				quantizer = min(max(f.quantizer+v, 0), 255)
			}
		}
		exact = exact && quantizer == 0
	}
	return exact
}

// filters reads the parameters of the three filters: 5.9.11, 5.9.19 and 5.9.20.
func (f *frame) filters(r *bitReader) {
	s := f.sequence
	if f.intraCopy {
		return
	}
	if !f.lossless {
		f.deblocking(r)
		if s.cdef {
			r.f(2)
			strengths := 6
			if s.planes > 1 {
				strengths = 12
			}
			for range 1 << r.f(2) {
				r.f(strengths)
			}
		}
	}
	if f.lossless && f.width == f.upscaled || !s.restore {
		return
	}
	some, chroma := false, false
	for plane := range s.planes {
		if r.f(2) != 0 {
			some, chroma = true, chroma || plane > 0
		}
	}
	if !some {
		return
	}
	if r.flag() && !s.large {
		r.f(1)
	}
	if s.halfX && s.halfY && chroma {
		r.f(1)
	}
}

func (f *frame) deblocking(r *bitReader) {
	if levels := r.f(12); f.sequence.planes > 1 && levels != 0 { // two of six bits
		r.f(12)
	}
	r.f(3)
	if enabled := r.flag(); !enabled {
		return
	}
	if update := r.flag(); !update {
		return
	}
	for range 8 + 2 {
		if r.flag() {
			r.f(7)
		}
	}
}
