%% A loop that its compiler makes fast, and terms beyond the budget.
-module(loop).
-export([main/1]).
main([Text]) ->
    Many = list_to_integer(Text),
    Rows = [{I, I * 2, integer_to_list(I)} || I <- lists:seq(1, Many)],
    Sum = lists:foldl(fun({I, Twice, Name}, S) -> Name = integer_to_list(I), (S + Twice) rem 1000003 end, 0, Rows),
    io:format("~p ~p ~p~n", [work(0, 0), length(Rows), Sum]).
work(20000000, T) -> T;
work(I, T) -> work(I + 1, (T + I * 7) rem 1000003).
