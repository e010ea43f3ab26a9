// A loop that only its compiler makes fast, and objects beyond the budget.
using System;
class Row { public long Number; public double Half; public string Name; }
class Loop {
    static int Main(string[] arguments) {
        int many = int.Parse(arguments[0]);
        long t = 0;
        for (long i = 0; i < 50000000; i++) t = (t + i * 7) % 1000003;
        var rows = new Row[many];
        for (int i = 0; i < many; i++) rows[i] = new Row { Number = i, Half = i * 0.5, Name = "row " + i };
        long sum = 0;
        for (int round = 0; round < 2; round++)
            for (int i = 0; i < many; i++) {
                if (rows[i].Number != i || rows[i].Name != "row " + i) return 9;
                sum = (sum + (long)(rows[i].Half * 2)) % 1000003;
            }
        Console.WriteLine(t + " " + many + " " + sum);
        return 0;
    }
}
