package frame_test

import "errors"

// puff decompresses as RFC 1951 says, slowly, and takes note of how far back
// the compressor has reached: decompressors with larger windows than agreed
// would not see that. It knows nothing of damaged data but that it ends.
type puff struct {
	in       []byte
	at       int // bit
	out      []byte
	farthest int
}

var errPuff = errors.New("damaged")

// blocks decompresses a whole number of blocks that end with the input.
func (p *puff) blocks() (err error) {
	defer func() {
		if recover() != nil {
			err = errPuff
		}
	}()
	for (p.at+7)/8 < len(p.in) {
		p.bits(1) // final or not: the input ends it
		switch p.bits(2) {
		case 0:
			p.at = (p.at + 7) &^ 7
			length := p.bits(16)
			if p.bits(16) != length^0xFFFF {
				panic(errPuff)
			}
			for range length {
				p.out = append(p.out, byte(p.bits(8)))
			}
		case 1:
			p.block(fixedCodes())
		case 2:
			p.block(p.dynamicCodes())
		default:
			panic(errPuff)
		}
	}
	return nil
}

func (p *puff) bits(n int) (value int) {
	for i := range n {
		value |= int(p.in[p.at/8]>>(p.at%8)&1) << i
		p.at++
	}
	return value
}

// codes has the symbols of a canonical Huffman code in the order of their
// codes, and how many have each length (RFC 1951, 3.2.2).
type codes struct {
	ofLength [16]int
	symbols  []int
}

func makeCodes(lengths []int) (c codes) {
	for length := 1; length < len(c.ofLength); length++ {
		for symbol, l := range lengths {
			if l == length {
				c.symbols = append(c.symbols, symbol)
				c.ofLength[length]++
			}
		}
	}
	return c
}

// symbol reads bits until they are the code of one. The codes of a length are
// numbers in a row; the first one of the next length is twice the number
// behind them.
func (p *puff) symbol(c codes) int {
	number, symbols := 0, c.symbols
	for _, n := range c.ofLength[1:] {
		number = number<<1 | p.bits(1)
		if number < n {
			return symbols[number]
		}
		number -= n
		symbols = symbols[n:]
	}
	panic(errPuff)
}

func fixedCodes() (literals, distances codes) {
	lengths := make([]int, 288)
	for i := range lengths {
		switch {
		case i < 144:
			lengths[i] = 8
		case i < 256:
			lengths[i] = 9
		case i < 280:
			lengths[i] = 7
		default:
			lengths[i] = 8
		}
	}
	far := make([]int, 30)
	for i := range far {
		far[i] = 5
	}
	return makeCodes(lengths), makeCodes(far)
}

func (p *puff) dynamicCodes() (literals, distances codes) {
	nlit, ndist, nlen := p.bits(5)+257, p.bits(5)+1, p.bits(4)+4
	order := []int{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}
	small := make([]int, 19)
	for _, i := range order[:nlen] {
		small[i] = p.bits(3)
	}
	c := makeCodes(small)
	var lengths []int
	for len(lengths) < nlit+ndist {
		value, times := 0, 1
		switch symbol := p.symbol(c); symbol {
		case 16:
			value, times = lengths[len(lengths)-1], 3+p.bits(2)
		case 17:
			times = 3 + p.bits(3)
		case 18:
			times = 11 + p.bits(7)
		default:
			value = symbol
		}
		for range times {
			lengths = append(lengths, value)
		}
	}
	return makeCodes(lengths[:nlit]), makeCodes(lengths[nlit:])
}

// block decompresses one block (RFC 1951, 3.2.5).
func (p *puff) block(literals, distances codes) {
	for {
		symbol := p.symbol(literals)
		if symbol == 256 {
			return
		}
		if symbol < 256 {
			p.out = append(p.out, byte(symbol))
			continue
		}
		length := 258
		switch {
		case symbol < 265:
			length = symbol - 254
		case symbol < 285:
			extra := (symbol - 261) / 4
			length = 3 + (4+(symbol-265)%4)<<extra + p.bits(extra)
		}
		far := p.symbol(distances)
		distance := far + 1
		if far >= 4 {
			extra := far/2 - 1
			distance = 1 + (2+far%2)<<extra + p.bits(extra)
		}
		p.farthest = max(p.farthest, distance)
		for range length {
			p.out = append(p.out, p.out[len(p.out)-distance])
		}
	}
}
