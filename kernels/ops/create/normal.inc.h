// The functions of Box-Muller in f64. They use only exactly rounded operations, so bits are equal
// on every device. The includer provides a namespace with BitsOf, DoubleOf, Floor and
// OPWIRE_FUNCTION.

// ln of a normal number in (0, 1].
OPWIRE_FUNCTION double Log(double u) {
  const unsigned long long bits = BitsOf(u);
  // The mantissa in [sqrt(1/2), sqrt(2)).
  const long long shifted = static_cast<long long>(bits - 0x3FE6A09E667F3BCDull) >> 52;
  const double e = static_cast<double>(shifted);
  const double m = DoubleOf(bits - (static_cast<unsigned long long>(shifted) << 52));
  const double f = m - 1.0, s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
  const double r =
      z * (6.666666666666735130e-01 +
           z * (3.999999999940941908e-01 +
                z * (2.857142874366239149e-01 +
                     z * (2.222219843214978396e-01 +
                          z * (1.818357216161805012e-01 +
                               z * (1.531383769920937332e-01 + z * 1.479819860511658591e-01))))));
  return e * 6.93147180369123816490e-01 -
         ((half - (s * (half + r) + e * 1.90821492927058770002e-10)) - f);
}

// Cosine and sine of 2 pi u, u in [0, 1).
OPWIRE_FUNCTION void CosSin(double u, double* cosine, double* sine) {
  const double q = Floor(4.0 * u + 0.5);
  const double x = (4.0 * u - q) * 1.57079632679489661923, z = x * x;
  const double s =
      x + x * z *
              (-1.66666666666666324348e-01 +
               z * (8.33333333332248946124e-03 +
                    z * (-1.98412698298579493134e-04 +
                         z * (2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08 +
                                                                z * 1.58969099521155010221e-10)))));
  const double c =
      1.0 - 0.5 * z +
      z * z *
          (4.16666666666666019037e-02 +
           z * (-1.38888888888741095749e-03 +
                z * (2.48015872894767294178e-05 +
                     z * (-2.75573143513906633035e-07 +
                          z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)))));
  // q is 0, 1, 2, 3 or 4: the quadrant.
  const bool odd = q == 1.0 || q == 3.0, cos_negative = q == 1.0 || q == 2.0,
             sin_negative = q == 2.0 || q == 3.0;
  const double a = odd ? s : c, b = odd ? c : s;
  *cosine = cos_negative ? -a : a;
  *sine = sin_negative ? -b : b;
}
